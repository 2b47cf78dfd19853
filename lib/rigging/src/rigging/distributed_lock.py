"""Leases that hold across processes and machines; the rules are in `rigging.lease.base`.

with lease("gs://bucket/step/.lock") as held:
    for batch in batches:
        held.check()
        write(batch, fencing_number=held.fencing_token)

Exclusive on local files (one machine), GCS and S3 (any); elsewhere best effort, said in a warning. No other gets the
lease while it is renewed, every 30 s; without renewal others may take it after 90 s: at once when the storage's own
clock says that they have passed, or its process was on this machine and has ended. As long as the process is to be seen
on this machine the lease stays its own, whatever the clocks say; from a process that is stopped (SIGSTOP) only
`python -m rigging.lease take` takes it. Work that may stall for longer than that hands its fencing number on with what
it writes: the number grows with each holder, so that the store of the result can refuse a late one.
"""

from rigging.lease.base import LeaseLock, LeaseLostError
from rigging.lease.holding import HeldLease, create_lock, lease
from rigging.lease.kinds import FsspecLease, GcsLease, LocalFileLease, S3Lease, default_worker_id
from rigging.lease.record import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, SKEW_ALLOWANCE, Lease

__all__ = [
    "HEARTBEAT_INTERVAL",
    "HEARTBEAT_TIMEOUT",
    "SKEW_ALLOWANCE",
    "FsspecLease",
    "GcsLease",
    "HeldLease",
    "Lease",
    "LeaseLock",
    "LeaseLostError",
    "LocalFileLease",
    "S3Lease",
    "create_lock",
    "default_worker_id",
    "lease",
]
