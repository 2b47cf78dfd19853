"""The controller of a cluster.

Code with I/O, time and threads belongs here. Pure decisions belong in `iris.core` and `iris.sched`.
"""
