"""Leases: exclusive claims that expire, with a holder and a fencing number (see `rigging.distributed_lock`).

The rules are in `base` and `staleness`. A store only reads, writes and deletes two files.
"""
