"""The cluster in memory: `ClusterView`, its tables, indexes, changes and invariants.

Data and its consistency only; rules are in `core.rules`.
"""
