-- The key that a worker proves in each session; empty until it has connected with one.

ALTER TABLE worker_credentials ADD COLUMN public_key TEXT NOT NULL DEFAULT '';
