-- What each user has had lately, so that a restart does not forget who has had much (iris.core.usage).

CREATE TABLE usage (
    user  TEXT PRIMARY KEY,
    use   REAL NOT NULL,             -- weight times ms, decayed, as of
    at_ms INTEGER NOT NULL
) WITHOUT ROWID;
