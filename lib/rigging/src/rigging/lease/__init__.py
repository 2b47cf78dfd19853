"""Leases: expiring exclusive claims with a holder and a fencing number (see `rigging.distributed_lock`).

Rules are in `base` and `staleness`; a store only reads, writes and deletes two files.
"""
