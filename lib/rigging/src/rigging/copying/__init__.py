"""Copy files into the local prefix. Each copy is made once, atomic, verified, and charged to a budget.

`rigging.mirror` decides what to copy; budgets belong to `rigging.filesystem`.
"""
