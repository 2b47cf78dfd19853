"""The cluster in memory: `ClusterView`, its tables, indexes, changes and invariants.

Data and its consistency belong here. Rules are in `core.rules`.
"""
