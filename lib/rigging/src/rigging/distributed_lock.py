"""Leases that hold across processes and machines; the rules are in `rigging.lease.base`.

with lease("gs://bucket/step/.lock") as held:
    for batch in batches:
        held.check()
        ...
"""

from rigging.lease.base import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, SKEW_ALLOWANCE, Lease, LeaseLock, LeaseLostError
from rigging.lease.holding import HeldLease, create_lock, lease

__all__ = [
    "HEARTBEAT_INTERVAL",
    "HEARTBEAT_TIMEOUT",
    "SKEW_ALLOWANCE",
    "HeldLease",
    "Lease",
    "LeaseLock",
    "LeaseLostError",
    "create_lock",
    "lease",
]
