"""The life of a job, actors' references and process groups, for all backends.

Here belongs what at least two backends share. Decisions are pure (`job_life`); nothing here imports a backend.
"""
