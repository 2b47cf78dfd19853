-- Where live attempts answer; rows go with their attempt.

CREATE TABLE endpoints (
    endpoint_id      TEXT PRIMARY KEY,  -- name and attempt
    name             TEXT NOT NULL,
    attempt_id       TEXT NOT NULL,
    address          TEXT NOT NULL,
    metadata         TEXT NOT NULL,     -- JSON object
    registered_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
