"""Leases: expiring exclusive claims with a holder and a fencing number (see `rigging.distributed_lock`)."""
