"""The call of a step's function, in this process or as a job: submission, output, return value."""
