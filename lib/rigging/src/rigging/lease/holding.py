"""Holding a lease for the length of a block, renewed in the background."""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator

from rigging.clock import SYSTEM_CLOCK, Clock
from rigging.errors import Conflict, InvalidRequest
from rigging.filesystem.location import Url, local_path
from rigging.lease.base import LeaseLock, LeaseLostError, LeaseStore
from rigging.lease.best_effort import BestEffortLeaseStore
from rigging.lease.local import LocalLeaseStore
from rigging.lease.record import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, SKEW_ALLOWANCE

logger = logging.getLogger(__name__)

_POLL_START_SECONDS = 0.02
_POLL_LIMIT_SECONDS = 1.0


def create_lock(
    path: Url,
    worker_id: str | None = None,
    *,
    heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
    skew_allowance: float = SKEW_ALLOWANCE,
    must_renew: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> LeaseLock:
    """Return the lock on the lease at `path`; nothing is read or written yet.

    Args:
        path: The lock file: a plain path (relative too), file:// or any fsspec URL.
        worker_id: The holder's identity, which may acquire again what it holds; by default each acquisition is its own.
        heartbeat_timeout: Seconds without a renewal after which others may take the lease.
        skew_allowance: Seconds by which wall clocks of different machines may differ.
        must_renew: A holder that is to be seen on this machine, running or stopped, loses a lease that it does not
            renew, as one elsewhere does: for work whose every write is fenced. All who share the lease say the same.
        clock: For tests.
    """
    if not heartbeat_timeout > 0:
        raise InvalidRequest(f"heartbeat_timeout={heartbeat_timeout}: must be above 0 seconds")
    if worker_id == "":
        raise InvalidRequest("worker_id='': must name the holder; leave it out for one of its own per acquisition")
    return LeaseLock(
        store_of(path),
        worker_id,
        heartbeat_timeout=heartbeat_timeout,
        skew_allowance=skew_allowance,
        must_renew=must_renew,
        clock=clock,
    )


def store_of(path: Url) -> LeaseStore:
    """Return where the lease at `path` is kept; nothing is read or written yet."""
    local = local_path(path)
    if local is not None:
        return LocalLeaseStore(local)
    # Imported here: most leases are local files, and imports of this package are to be quick.
    from rigging.lease.buckets import bucket_objects
    from rigging.lease.object_store import ObjectLeaseStore

    url = os.fspath(path)
    found = bucket_objects(url)
    if found is None:
        return BestEffortLeaseStore(url)
    objects, key = found
    return ObjectLeaseStore(url, key, objects)


class HeldLease:
    """A lease held by a `lease(...)` block.

    Attributes:
        lost: Set as soon as the lease is lost, or could not be renewed for so long that others may take it.
        lock: The lock below.
        fencing_token: The number of this acquisition.
        worker_id: The id in the lock file.
    """

    def __init__(self, lock: LeaseLock, heartbeat_timeout: float, clock: Clock) -> None:
        self.lock = lock
        self.fencing_token = lock.fencing_token
        self.worker_id = lock.worker_id
        self.lost = threading.Event()
        self._timeout = heartbeat_timeout
        self._clock = clock
        self._renewed_at = clock.monotonic()

    def seconds_left(self) -> float:
        """Return the seconds until others may take the lease if it is not renewed; below 0 when they may already."""
        return self._renewed_at + self._timeout - self._clock.monotonic()

    def renew(self) -> None:
        """Renew now; raises LeaseLostError, and sets `lost`, when it is not held any more."""
        # The time before the call counts: it is not known when in between the storage took it.
        attempted_at = self._clock.monotonic()
        try:
            self.lock.refresh()
        except LeaseLostError:
            self.lost.set()
            raise
        self._renewed_at = attempted_at

    def check(self) -> None:
        """Raise LeaseLostError when the lease is lost, or overdue because a renewal hangs."""
        if self.seconds_left() <= 0:
            self.lost.set()
        if self.lost.is_set():
            raise LeaseLostError(f"lease {self.lock.location} was lost to {self.worker_id} while it was held")


@contextlib.contextmanager
def lease(
    path: Url,
    worker_id: str | None = None,
    *,
    wait_seconds: float = 0.0,
    heartbeat_interval: float = HEARTBEAT_INTERVAL,
    heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
    skew_allowance: float = SKEW_ALLOWANCE,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[HeldLease]:
    """Hold the lease at `path` during the block; a background thread renews it.

    Args:
        path: The lock file, as for `create_lock`.
        worker_id: The holder's identity, as for `create_lock`.
        wait_seconds: How long to wait for another holder; `math.inf` for ever.
        heartbeat_interval: Seconds between renewals.
        heartbeat_timeout: Seconds without a renewal after which others may take the lease.
        skew_allowance: Seconds by which wall clocks of different machines may differ.
        clock: For tests.

    Raises:
        Conflict: Another holds it; the message says who.
        LeaseLostError: At the end of a block that itself succeeded, when the lease was lost on the way: the work was
            unprotected.
    """
    if not 0 < heartbeat_interval < heartbeat_timeout:
        raise InvalidRequest(
            f"heartbeat_interval={heartbeat_interval}: must be above 0 and below heartbeat_timeout={heartbeat_timeout}"
        )
    lock = create_lock(path, worker_id, heartbeat_timeout=heartbeat_timeout, skew_allowance=skew_allowance, clock=clock)
    _acquire(lock, wait_seconds, clock)
    held = HeldLease(lock, heartbeat_timeout, clock)
    stop = threading.Event()
    renewer = threading.Thread(target=_renew, args=(held, stop, heartbeat_interval), name="lease-renewer", daemon=True)
    renewer.start()
    try:
        yield held
    finally:
        stop.set()
        renewer.join()
        if not lock.release():
            held.lost.set()
    if held.lost.is_set():
        held.check()


def _acquire(lock: LeaseLock, wait_seconds: float, clock: Clock) -> None:
    give_up_at = clock.monotonic() + wait_seconds
    pause = threading.Event()
    interval = _POLL_START_SECONDS
    while not lock.try_acquire():
        left = give_up_at - clock.monotonic()
        if left <= 0:
            holder = lock.holder()
            raise Conflict(
                f"lease {lock.location} is held by {holder.worker_id if holder else 'another'}; "
                f"waited {wait_seconds:g} s for it"
            )
        pause.wait(min(interval, left))
        interval = min(interval * 1.5, _POLL_LIMIT_SECONDS)


def _renew(held: HeldLease, stop: threading.Event, interval: float) -> None:
    pause = interval
    while not stop.wait(pause):
        pause = interval
        try:
            held.renew()
        except LeaseLostError as error:
            logger.error("%s", error)
            return
        # Whatever the storage raises, in whichever library's words, only means that this renewal did not happen.
        except Exception as error:
            left = held.seconds_left()
            logger.warning("lease %s: renewal failed, %.0f s left: %s", held.lock.location, max(left, 0.0), error)
            if left <= 0:
                held.lost.set()
                return
            pause = min(interval / 5, left)
