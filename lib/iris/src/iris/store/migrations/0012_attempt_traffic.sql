-- What each attempt has sent and received by TCP, as far as it was seen.

ALTER TABLE attempt_usage ADD COLUMN sent_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt_usage ADD COLUMN received_bytes INTEGER NOT NULL DEFAULT 0;
