"""The controller of a cluster; `app` assembles it.

Code that acts for a cluster belongs here: I/O, time, threads. Decisions are pure and are in `iris.core` and
`iris.sched`.
"""
