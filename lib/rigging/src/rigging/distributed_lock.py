"""Leases across processes and machines. The rules are in `rigging.lease.base`.

with lease("gs://bucket/step/.lock") as held:
    for batch in batches:
        held.check()
        write(batch, fencing_number=held.fencing_token)

A lease is exclusive on local files (one machine), GCS and S3 (any machine). Elsewhere it is best effort, with a
warning. While the holder renews it, every 30 s, nobody else gets it. Without renewal others may take it after 90 s: at
once if the storage's own clock shows that they have passed, or if the holder's process was on this machine and has
ended. While that process is visible on this machine it keeps the lease, whatever the clocks say; only `python -m
rigging.lease take` takes it from a process that is stopped (SIGSTOP). Work that may stall for longer should pass on its
fencing number with its writes: the number grows with each holder, so that the store of the result can refuse a late
writer.
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
