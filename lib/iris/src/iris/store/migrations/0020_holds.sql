-- Why no task of a live job may start; empty for all earlier jobs.

ALTER TABLE jobs ADD COLUMN hold TEXT NOT NULL DEFAULT '';
