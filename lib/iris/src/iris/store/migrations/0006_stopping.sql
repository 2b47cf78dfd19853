-- Attempts that nobody wants any more and that have not ended: until then their resources are held, and no other attempt
-- of their job starts. A controller that forgot them would start a task a second time beside itself.

CREATE TABLE stopping (
    attempt_id TEXT PRIMARY KEY,
    job_id     TEXT NOT NULL,
    worker_id  TEXT NOT NULL,
    resources  TEXT NOT NULL,         -- JSON
    found      INTEGER NOT NULL       -- 1: it runs although it was thought gone
) WITHOUT ROWID;
