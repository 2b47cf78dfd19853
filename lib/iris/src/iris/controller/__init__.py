"""The controller of a cluster; `app` assembles it.

Here belongs what acts for a cluster: I/O, time, threads. Decisions are pure and live in `iris.core` and `iris.sched`.
"""
