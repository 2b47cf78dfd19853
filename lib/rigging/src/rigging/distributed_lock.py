"""Leases across processes and machines. The rules are in `rigging.lease.base`.

with lease("gs://bucket/step/.lock") as held:
    for batch in batches:
        held.check()
        write(batch, fencing_number=held.fencing_token)

A lease is exclusive on local files (one machine), GCS and S3 (any machine). Elsewhere it is best effort, with a
warning. The holder renews the lease every 30 s. Others may take it 90 s after the last renewal: immediately if the
storage's own clock shows this age, or if the holder's process ran on this machine and has ended. A process that still
exists on this machine keeps the lease, whatever the clocks say; only `python -m rigging.lease take` takes it from a
stopped process (SIGSTOP). Work that may stall for longer should send its fencing number with its writes. The number
grows with each holder, so the receiving store can refuse a late writer.
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
