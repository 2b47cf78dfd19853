-- Only what is forgotten was found by it, every ten minutes and beside the controller: a scan does.

DROP INDEX jobs_ended;
