"""Code for all backends: the life of a job, references to actors, process groups.

Only code that at least two backends share belongs here. Decisions are pure (`job_life`), and nothing here imports a
backend.
"""
