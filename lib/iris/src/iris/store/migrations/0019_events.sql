-- What happened: joins, losses, placements, ends, requests of users. Old rows are removed.

CREATE TABLE events (
    sequence  INTEGER PRIMARY KEY,
    turn      INTEGER NOT NULL,  -- of the engine; each ends with a scheduling round
    decided   INTEGER NOT NULL,  -- 1: by that round
    at_ms     INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    subject   TEXT,              -- a user, job, task or attempt
    worker_id TEXT,
    caller    TEXT,
    address   TEXT,
    detail    TEXT               -- JSON of the rest
);
