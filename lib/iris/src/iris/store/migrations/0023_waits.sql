-- The live jobs whose end a job waits for, and when the last of these ended; nothing for all earlier jobs.

ALTER TABLE jobs ADD COLUMN waits TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN ready_at_ms INTEGER NOT NULL DEFAULT 0;
