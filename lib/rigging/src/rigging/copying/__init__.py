"""Copy files into the local prefix: once each, whole, verified, and charged to a budget.

What to copy is decided by `rigging.mirror`; budgets are `rigging.filesystem`'s.
"""
