"""Accounts for every core- and chip-second of the cluster.

Import from its modules.
"""
