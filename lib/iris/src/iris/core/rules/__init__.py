"""The rules: `reduce` and its parts, reconciliation, contact, timeouts.

Pure functions over a `draft` of the view. Placement is in `iris.sched`.
"""
