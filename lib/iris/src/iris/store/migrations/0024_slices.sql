-- Slices of scale groups, each stored before the provider is asked for it, and what is closed after failures.

CREATE TABLE slices (
    name         TEXT PRIMARY KEY,
    scale_group  TEXT NOT NULL,
    state        INTEGER NOT NULL,
    created_ms   INTEGER NOT NULL,
    changed_ms   INTEGER NOT NULL,
    ready_ms     INTEGER NOT NULL,
    joined_ms    INTEGER NOT NULL,
    used_ms      INTEGER NOT NULL,
    unlisted     INTEGER NOT NULL,
    outcome      TEXT NOT NULL,  -- empty: not answered yet
    words        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    asked_by     TEXT NOT NULL   -- empty: the autoscaler
);

CREATE TABLE closures (
    key       TEXT PRIMARY KEY,
    outcome   TEXT NOT NULL,
    words     TEXT NOT NULL,
    since_ms  INTEGER NOT NULL,
    until_ms  INTEGER NOT NULL,  -- 0: until the cluster file changes
    failures  INTEGER NOT NULL,
    tier      INTEGER NOT NULL,
    digest    TEXT NOT NULL
);
