-- How cores and chips spent their time, by hour and owner; days after a month. Kept for years.

CREATE TABLE ledger (
    start_ms            INTEGER NOT NULL,
    user                TEXT NOT NULL,     -- empty: nobody
    job_id              TEXT NOT NULL,     -- a root job or its child; empty: small jobs, or nobody
    worker_group        TEXT NOT NULL,
    counted_ms          INTEGER NOT NULL,  -- until when
    core_hour_price     REAL NOT NULL,     -- 0: unknown
    chip_hour_price     REAL NOT NULL,
    productive_core_ms  INTEGER NOT NULL,
    environment_core_ms INTEGER NOT NULL,
    waiting_core_ms     INTEGER NOT NULL,
    restart_core_ms     INTEGER NOT NULL,
    lost_core_ms        INTEGER NOT NULL,
    idle_core_ms        INTEGER NOT NULL,
    reserved_core_ms    INTEGER NOT NULL,
    running_core_ms     INTEGER NOT NULL,  -- not decided yet
    productive_chip_ms  INTEGER NOT NULL,
    environment_chip_ms INTEGER NOT NULL,
    waiting_chip_ms     INTEGER NOT NULL,
    restart_chip_ms     INTEGER NOT NULL,
    lost_chip_ms        INTEGER NOT NULL,
    idle_chip_ms        INTEGER NOT NULL,
    reserved_chip_ms    INTEGER NOT NULL,
    running_chip_ms     INTEGER NOT NULL,
    PRIMARY KEY (start_ms, user, job_id, worker_group)
) WITHOUT ROWID;

CREATE INDEX ledger_open ON ledger (start_ms) WHERE running_core_ms + running_chip_ms > 0;
