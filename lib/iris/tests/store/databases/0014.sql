-- Written by the release whose last migration was 0014.
BEGIN TRANSACTION;
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
    at_ms             INTEGER NOT NULL, sent_bytes INTEGER NOT NULL DEFAULT 0, received_bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, task_index, attempt)
) WITHOUT ROWID;
INSERT INTO "attempt_usage" VALUES('/ann/train/child',1,5,'w1',1500,0,0,4096,0,8192,0,3,99,0,0);
CREATE TABLE budgets (
    user       TEXT PRIMARY KEY,
    max_weight REAL NOT NULL,        -- 0: no limit
    max_band   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE endpoints (
    endpoint_id      TEXT PRIMARY KEY,  -- name and attempt
    name             TEXT NOT NULL,
    attempt_id       TEXT NOT NULL,
    address          TEXT NOT NULL,
    metadata         TEXT NOT NULL,     -- JSON object
    registered_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE job_env_vars (
    job_id   TEXT PRIMARY KEY,
    env_vars TEXT NOT NULL            -- JSON object; no row: none
) WITHOUT ROWID;
INSERT INTO "job_env_vars" VALUES('/ann/train/child','{"TOKEN":"secret","UMLAUT":"ä\n"}');
CREATE TABLE job_specs (
    job_id TEXT PRIMARY KEY,
    spec   TEXT NOT NULL              -- JSON (iris.store.rows)
) WITHOUT ROWID;
INSERT INTO "job_specs" VALUES('/ann/plain','{"entrypoint":{"argv":["true"]},"resources":{"cpu_millis":0,"memory_bytes":0,"disk_bytes":0},"replicas":1,"max_retries_preemption":1000,"band":2}');
INSERT INTO "job_specs" VALUES('/ann/train/child','{"entrypoint":{"payload_digest":"abababababababababababababababababababababababababababababababab","display_name":"module:fn"},"resources":{"cpu_millis":1500,"memory_bytes":1073741824,"disk_bytes":2147483648,"device":["tpu","v5p-8",4,["v4-8"]]},"extras":["tpu"],"pip_packages":["numpy>=2"],"bundle_digest":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","replicas":3,"max_retries_failure":2,"max_retries_preemption":0,"timeout_ms":1000,"scheduling_timeout_ms":2000,"constraints":[["zone",3,["a","b"],true]],"coscheduling_group_by":"slice","ports":["http"],"band":3}');
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
INSERT INTO "jobs" VALUES('/ann/plain',2,1,5,0,0,'',0,0,NULL,'','[0,0,0,0,0,0,0,0,0,0,0]',0);
INSERT INTO "jobs" VALUES('/ann/train/child',1,5,5,6,7,'task 0 failed: exit code 3',3,9,'/ann/train/child/0','key','[0,1,2,3,4,5,6,7,8,9,10]',4);
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
CREATE TABLE journal (
    sequence INTEGER PRIMARY KEY,
    at_ms    INTEGER NOT NULL,
    payload  TEXT NOT NULL            -- JSON (iris.store.ops)
);
CREATE TABLE lost_attempts (
    attempt_id TEXT PRIMARY KEY,
    job_id     TEXT NOT NULL,
    worker_id  TEXT NOT NULL,
    resources  TEXT NOT NULL          -- JSON
) WITHOUT ROWID;
CREATE TABLE notices (
    name TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE TABLE replication (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    sequence   INTEGER NOT NULL,      -- of the last commit
    generation INTEGER NOT NULL       -- the controller's lease under which it was made; 0: nothing is replicated
);
INSERT INTO "replication" VALUES(1,0,0);
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO "schema_version" VALUES(1);
INSERT INTO "schema_version" VALUES(2);
INSERT INTO "schema_version" VALUES(3);
INSERT INTO "schema_version" VALUES(4);
INSERT INTO "schema_version" VALUES(5);
INSERT INTO "schema_version" VALUES(6);
INSERT INTO "schema_version" VALUES(7);
INSERT INTO "schema_version" VALUES(8);
INSERT INTO "schema_version" VALUES(9);
INSERT INTO "schema_version" VALUES(10);
INSERT INTO "schema_version" VALUES(11);
INSERT INTO "schema_version" VALUES(12);
INSERT INTO "schema_version" VALUES(13);
INSERT INTO "schema_version" VALUES(14);
CREATE TABLE stopping (
    attempt_id TEXT PRIMARY KEY,
    job_id     TEXT NOT NULL,
    worker_id  TEXT NOT NULL,
    resources  TEXT NOT NULL,         -- JSON
    found      INTEGER NOT NULL       -- 1: it runs although it was thought gone
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
    causes          TEXT NOT NULL, failure_times TEXT NOT NULL DEFAULT '[]',    -- JSON list, one line for each ended attempt
    PRIMARY KEY (job_id, task_index)
) WITHOUT ROWID;
INSERT INTO "tasks" VALUES('/ann/plain',0,1,-1,NULL,0,0,0,0,'',0,0,'[]','[]');
INSERT INTO "tasks" VALUES('/ann/train/child',0,5,5,'w1',1,2,3,9,'exit code 3',8,9,'["attempt 4 on w1: lost","a \"quoted\" one"]','[]');
INSERT INTO "tasks" VALUES('/ann/train/child',1,5,5,'w1',1,2,3,9,'exit code 3',8,9,'["attempt 4 on w1: lost","a \"quoted\" one"]','[]');
INSERT INTO "tasks" VALUES('/ann/train/child',2,5,5,'w1',1,2,3,9,'exit code 3',8,9,'["attempt 4 on w1: lost","a \"quoted\" one"]','[]');
CREATE TABLE usage (
    user  TEXT PRIMARY KEY,
    use   REAL NOT NULL,             -- weight times ms, decayed, as of
    at_ms INTEGER NOT NULL
) WITHOUT ROWID;
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
CREATE TABLE worker_credentials (
    secret_sha256 TEXT PRIMARY KEY,
    worker_id     TEXT NOT NULL,
    token_id      TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    revoked_by    TEXT NOT NULL,
    revoked_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE workers (
    worker_id       TEXT PRIMARY KEY,
    instance_id     TEXT NOT NULL,
    capacity        TEXT NOT NULL,    -- JSON
    attributes      TEXT NOT NULL,    -- JSON
    last_seen_at_ms INTEGER NOT NULL
, cordon_reason TEXT NOT NULL DEFAULT '', strikes INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO "workers" VALUES('w1','one','{"cpu_millis":2000,"memory_bytes":1,"disk_bytes":2}','{"zone":"a"}',77,'',0);
COMMIT;
