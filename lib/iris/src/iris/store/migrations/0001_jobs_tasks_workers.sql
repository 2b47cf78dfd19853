-- Times are Unix milliseconds, 0 = not yet. The numbers of `state` are public (iris.domain.states).

CREATE TABLE jobs (
    job_id           TEXT PRIMARY KEY,
    sequence         INTEGER NOT NULL,
    state            INTEGER NOT NULL,
    submitted_at_ms  INTEGER NOT NULL,
    started_at_ms    INTEGER NOT NULL,
    finished_at_ms   INTEGER NOT NULL,
    error            TEXT NOT NULL,
    exit_code        INTEGER NOT NULL,
    exit_signal      INTEGER NOT NULL,
    deciding_task_id TEXT,
    idempotency_key  TEXT NOT NULL,
    task_counts      TEXT NOT NULL,   -- JSON list indexed by the task state's number
    first_attempt    INTEGER NOT NULL
) WITHOUT ROWID;

-- Apart from jobs: written once, while the row of the job changes often.
CREATE TABLE job_specs (
    job_id TEXT PRIMARY KEY,
    spec   TEXT NOT NULL              -- JSON (iris.store.rows)
) WITHOUT ROWID;

CREATE TABLE tasks (
    job_id          TEXT NOT NULL,
    task_index      INTEGER NOT NULL,
    state           INTEGER NOT NULL,
    attempt         INTEGER NOT NULL,
    worker_id       TEXT,
    failures        INTEGER NOT NULL,
    preemptions     INTEGER NOT NULL,
    exit_code       INTEGER NOT NULL,
    exit_signal     INTEGER NOT NULL,
    error           TEXT NOT NULL,
    started_at_ms   INTEGER NOT NULL,
    finished_at_ms  INTEGER NOT NULL,
    causes          TEXT NOT NULL,    -- JSON list, one line for each ended attempt
    PRIMARY KEY (job_id, task_index)
) WITHOUT ROWID;

CREATE TABLE workers (
    worker_id       TEXT PRIMARY KEY,
    instance_id     TEXT NOT NULL,
    capacity        TEXT NOT NULL,    -- JSON
    attributes      TEXT NOT NULL,    -- JSON
    last_seen_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
