-- Attempts that were given up while their worker was out of reach. Each may still run, and is stopped when its worker is
-- back; until then a job's summary names it.

CREATE TABLE lost_attempts (
    attempt_id TEXT PRIMARY KEY,
    job_id     TEXT NOT NULL,
    worker_id  TEXT NOT NULL,
    resources  TEXT NOT NULL          -- JSON
) WITHOUT ROWID;
