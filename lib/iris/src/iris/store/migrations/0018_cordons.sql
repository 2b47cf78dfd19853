-- Who cordoned a worker, and when; unknown of earlier cordons.

ALTER TABLE workers ADD COLUMN cordoned_by TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN cordoned_at_ms INTEGER NOT NULL DEFAULT 0;
