"""Steps' output and the log beside it, written in parts by the run and by the processes of steps' jobs.

Each part belongs to one process. `writer` writes parts and `sections` finds them. A log is complete without a run or
cluster.
"""
