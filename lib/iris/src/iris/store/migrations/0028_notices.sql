-- The notice of a preempted attempt, which a restarted controller must give again: reason and ms until SIGKILL.

ALTER TABLE stopping ADD COLUMN notice TEXT NOT NULL DEFAULT '';
