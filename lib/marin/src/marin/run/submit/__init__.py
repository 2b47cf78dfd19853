"""From the command line of `ray_run` to the end of a job: what is sent, the Jobs API, the log that is followed."""
