"""Records beside outputs: info files, statuses, provenance, and their comparison with the steps of a run.

Reading recorded runs for people is `marin.recorded`.
"""
