-- When each attempt began; 0 for those of which it was not kept.

ALTER TABLE attempt_usage ADD COLUMN began_at_ms INTEGER NOT NULL DEFAULT 0;
