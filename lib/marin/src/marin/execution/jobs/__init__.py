"""The call of a step's function: in this process or as a job, and what comes back of it."""
