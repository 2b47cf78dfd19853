-- What each attempt has used of its host, as long as its job is known.

CREATE TABLE attempt_usage (
    job_id            TEXT NOT NULL,
    task_index        INTEGER NOT NULL,
    attempt           INTEGER NOT NULL,
    worker_id         TEXT NOT NULL,
    cpu_ms            INTEGER NOT NULL,
    cpu_millis        INTEGER NOT NULL,  -- when it was last seen, like the next three that are no peaks
    memory_bytes      INTEGER NOT NULL,
    memory_peak_bytes INTEGER NOT NULL,
    disk_bytes        INTEGER NOT NULL,
    disk_peak_bytes   INTEGER NOT NULL,
    processes         INTEGER NOT NULL,
    processes_peak    INTEGER NOT NULL,
    at_ms             INTEGER NOT NULL,
    PRIMARY KEY (job_id, task_index, attempt)
) WITHOUT ROWID;
