-- The usage of attempts over their whole lives; a row lives as long as its job.

ALTER TABLE attempt_usage ADD COLUMN memory_mean_bytes INTEGER NOT NULL DEFAULT 0;  -- 0: not known

CREATE TABLE usage_series (
    job_id     TEXT NOT NULL,
    task_index INTEGER NOT NULL,
    series     TEXT NOT NULL,  -- packed (iris.domain.usage_series)
    PRIMARY KEY (job_id, task_index)
);
