-- A repeated submission has the name of the first one, so keys are compared where the name is found.

DROP INDEX jobs_by_key;
