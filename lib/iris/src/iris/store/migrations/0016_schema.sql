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
    retry_at_ms     INTEGER NOT NULL DEFAULT 0,   -- of one that waits after a failure: not before then
    burnt           INTEGER NOT NULL DEFAULT -1,  -- the highest number of an attempt, where an earlier one has its place again
    failure_times   TEXT NOT NULL DEFAULT '[]',  -- JSON: Unix ms of the latest, for jobs whose retries are counted in a span of time
    PRIMARY KEY (job_id, task_index)
) WITHOUT ROWID;

CREATE TABLE workers (
    worker_id       TEXT PRIMARY KEY,
    instance_id     TEXT NOT NULL,
    capacity        TEXT NOT NULL,    -- JSON
    attributes      TEXT NOT NULL,    -- JSON
    last_seen_at_ms INTEGER NOT NULL,
    cordon_reason   TEXT NOT NULL DEFAULT '',
    strikes         INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Environment variables may hold secrets: they get a table of their own, which `iris query` never reads.

CREATE TABLE job_env_vars (
    job_id   TEXT PRIMARY KEY,
    env_vars TEXT NOT NULL            -- JSON object; no row: none
) WITHOUT ROWID;

-- The place of this database in the history that is kept off the machine (docs/durability.md).

CREATE TABLE replication (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    sequence   INTEGER NOT NULL,      -- of the last commit
    generation INTEGER NOT NULL       -- the controller's lease under which it was made; 0: nothing is replicated
);
INSERT INTO replication VALUES (1, 0, 0);

-- Commits that are not known to be off the machine; written in their own transaction, so a crash leaves no gap.
CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY,
    at_ms    INTEGER NOT NULL,
    payload  TEXT NOT NULL            -- JSON (iris.store.ops)
);

CREATE TABLE budgets (
    user       TEXT PRIMARY KEY,
    max_weight REAL NOT NULL,        -- 0: no limit
    max_band   INTEGER NOT NULL
) WITHOUT ROWID;

-- Where live attempts answer; rows go with their attempt.

CREATE TABLE endpoints (
    endpoint_id      TEXT PRIMARY KEY,  -- name and attempt
    name             TEXT NOT NULL,
    attempt_id       TEXT NOT NULL,
    address          TEXT NOT NULL,
    metadata         TEXT NOT NULL,     -- JSON object
    registered_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Attempts that nobody wants any more and that have not ended: until then their resources are held, and no other attempt
-- of their job starts. A controller that forgot them would start a task a second time beside itself.

CREATE TABLE stopping (
    attempt_id TEXT PRIMARY KEY,
    job_id     TEXT NOT NULL,
    worker_id  TEXT NOT NULL,
    resources  TEXT NOT NULL,         -- JSON
    found      INTEGER NOT NULL       -- 1: it runs although it was thought gone
) WITHOUT ROWID;

-- What each user has had lately, so that a restart does not forget who has had much (iris.core.usage).

CREATE TABLE usage (
    user  TEXT PRIMARY KEY,
    use   REAL NOT NULL,             -- weight times ms, decayed, as of
    at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Attempts that were given up while their worker was out of reach. Each may still run, and has its task back, or is
-- stopped, when its worker is heard; until then a job's summary names it.

CREATE TABLE lost_attempts (
    attempt_id TEXT PRIMARY KEY,
    job_id     TEXT NOT NULL,
    worker_id  TEXT NOT NULL,
    resources  TEXT NOT NULL,         -- JSON
    may_return INTEGER NOT NULL,      -- 1: it has its task back if it is heard of before a successor begins
    is_charged INTEGER NOT NULL,
    endpoints  TEXT NOT NULL          -- JSON: rows of those that it had
) WITHOUT ROWID;

-- Who may join: tokens for new workers, and the credentials that those got. Of secrets only digests are here. Rows stay
-- when they are revoked or used up: they say who let whom in, and when.

CREATE TABLE join_tokens (
    token_id      TEXT PRIMARY KEY,
    secret_sha256 TEXT NOT NULL,
    note          TEXT NOT NULL,
    created_by    TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    max_uses      INTEGER NOT NULL,
    uses          INTEGER NOT NULL,
    revoked_by    TEXT NOT NULL,
    revoked_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE worker_credentials (
    secret_sha256 TEXT PRIMARY KEY,
    worker_id     TEXT NOT NULL,
    token_id      TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    revoked_by    TEXT NOT NULL,
    revoked_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

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
    began_at_ms       INTEGER NOT NULL DEFAULT 0,  -- 0: not known
    PRIMARY KEY (job_id, task_index, attempt)
) WITHOUT ROWID;

-- The tokens of users, each of which can be revoked by itself. Of secrets only digests are here. Rows stay
-- when they are revoked.

CREATE TABLE user_tokens (
    token_id      TEXT PRIMARY KEY,
    user          TEXT NOT NULL,
    secret_sha256 TEXT NOT NULL,
    note          TEXT NOT NULL,
    created_by    TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    revoked_by    TEXT NOT NULL,
    revoked_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

-- Ends of jobs that somebody is yet to be told of, by the name of the delivery.

CREATE TABLE notices (
    name TEXT PRIMARY KEY
) WITHOUT ROWID;
