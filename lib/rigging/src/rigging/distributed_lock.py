"""Leases that hold across processes and machines; the rules are in `rigging.lease.base`.

with lease("gs://bucket/step/.lock") as held:
    for batch in batches:
        held.check()
        write(batch, fencing_number=held.fencing_token)

Exclusive on local files (one machine), GCS and S3 (any); elsewhere best effort, said in a warning. Nobody else gets the
lease while it is renewed, every 30 s; without renewal others may take it after 90 s, at once if its last renewal was
long ago or its local process has ended. Work that may stall for longer than that hands its fencing number on with what
it writes: the number grows with each holder, so that whoever stores the result can refuse a late one.
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
