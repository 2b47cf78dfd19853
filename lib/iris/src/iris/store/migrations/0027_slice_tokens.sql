-- Join tokens of the autoscaler are for the hosts of one slice.

ALTER TABLE join_tokens ADD COLUMN slice TEXT NOT NULL DEFAULT '';
