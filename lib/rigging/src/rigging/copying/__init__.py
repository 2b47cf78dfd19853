"""Copy files into the local prefix: each once, atomically, verified, and charged to a budget.

`rigging.mirror` decides what to copy; budgets belong to `rigging.filesystem`.
"""
