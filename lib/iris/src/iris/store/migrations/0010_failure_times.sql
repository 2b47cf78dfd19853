-- When the latest failures of a task were (Unix ms), for jobs whose retries are counted in a span of time.

ALTER TABLE tasks ADD COLUMN failure_times TEXT NOT NULL DEFAULT '[]';   -- JSON
