-- Ended jobs are not in the controller's memory: these find them.

CREATE INDEX jobs_by_sequence ON jobs (sequence);
CREATE INDEX jobs_by_key ON jobs (idempotency_key) WHERE idempotency_key != '';
CREATE INDEX jobs_live ON jobs (state) WHERE state < 4;
CREATE INDEX jobs_ended ON jobs (finished_at_ms, sequence) WHERE state >= 4;
