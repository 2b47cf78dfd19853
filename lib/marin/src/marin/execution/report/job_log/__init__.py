"""The log of a step that runs as a job: written by the job's own process, so that it needs neither run nor cluster."""
