"""Hold a lease for the length of a block, renewed in the background."""

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
    """Return the lock on the lease at `path`. Nothing is read or written yet.

    Args:
        path: The lock file: a plain path (also relative), file:// or any fsspec URL.
        worker_id: The holder's identity, which may acquire its own lease again. By default each acquisition is unique.
        heartbeat_timeout: Seconds without a renewal after which others may take the lease.
        skew_allowance: Maximum difference between the wall clocks of machines, in seconds.
        must_renew: A holder on this machine that does not renew its lease loses it, running or stopped, like a remote
            one. Use it only if every write is fenced. All users of the lease must pass the same value.
        clock: The clock; replaced in tests.
    """
    if not heartbeat_timeout > 0:
        raise InvalidRequest(f"heartbeat_timeout={heartbeat_timeout}: must be above 0 seconds")
    if worker_id == "":
        raise InvalidRequest("worker_id='': must name the holder; omit it to get a unique id per acquisition")
    return LeaseLock(
        store_of(path),
        worker_id,
        heartbeat_timeout=heartbeat_timeout,
        skew_allowance=skew_allowance,
        must_renew=must_renew,
        clock=clock,
    )


def store_of(path: Url) -> LeaseStore:
    """Return the store of the lease at `path`. Nothing is read or written yet."""
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
        lost: An event, set when the lease is lost, or its renewal is so late that others may take it.
        lock: The underlying lock.
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
        """Return the seconds until others may take the lease if it is not renewed; negative if they already may."""
        return self._renewed_at + self._timeout - self._clock.monotonic()

    def renew(self) -> None:
        """Renew the lease now. Raise LeaseLostError, and set `lost`, if it is lost."""
        # The time before the call counts: it is not known when in between the storage took it.
        attempted_at = self._clock.monotonic()
        try:
            self.lock.refresh()
        except LeaseLostError:
            self.lost.set()
            raise
        self._renewed_at = attempted_at

    def check(self) -> None:
        """Raise LeaseLostError if the lease is lost, or overdue because a renewal hangs."""
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
    """Hold the lease at `path` during the block. A background thread renews it.

    Args:
        path: The lock file, as in `create_lock`.
        worker_id: The holder's identity, as in `create_lock`.
        wait_seconds: Maximum time to wait for another holder; `math.inf` waits forever.
        heartbeat_interval: Seconds between renewals.
        heartbeat_timeout: Seconds without a renewal after which others may take the lease.
        skew_allowance: Maximum difference between the wall clocks of machines, in seconds.
        clock: The clock; replaced in tests.

    Raises:
        Conflict: Another process holds it. The message names the holder.
        LeaseLostError: At the end of a block that succeeded, if the lease was lost meanwhile: the work was unprotected.
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
