"""Records beside outputs: info files, statuses, provenance, and their comparison with a run's steps.

Reading recorded runs for people is in `marin.recorded`.
"""
