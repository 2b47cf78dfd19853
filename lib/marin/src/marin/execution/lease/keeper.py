"""One thread for all leases of a run. It renews held ones and watches those of other runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms, StepLease
from rigging.distributed_lock import LeaseLostError
from rigging.filesystem.fences import put_fence, remove_fence

logger = logging.getLogger(__name__)

T = TypeVar("T")

# So that one slow renewal does not delay the others.
_REQUESTS_AT_ONCE = 16
_FIRST_LOOK_SECONDS = 0.02
_LOOK_GROWTH = 1.5
# Reading a local file takes microseconds, an object store a request.
_LAST_LOOK_SECONDS = {True: 0.25, False: 2.0}


@dataclass(slots=True)
class _Kept:
    lease: StepLease
    on_lost: Callable[[], None]
    due: float


@dataclass(slots=True)
class _Watched:
    lease: StepLease
    on_free: Callable[[], None]
    due: float
    pause: float = field(default=_FIRST_LOOK_SECONDS)


class LeaseKeeper:
    """Keeps the leases of a run.

    Args:
        terms: The timings of leases.
        is_local: Whether leases are local files, which are cheap to read.
    """

    def __init__(self, terms: LeaseTerms = DEFAULT_TERMS, *, is_local: bool = True) -> None:
        self._terms = terms
        self._last_look = min(_LAST_LOOK_SECONDS[is_local], terms.renew_seconds)
        self._is_local = is_local
        self._changed = threading.Condition()
        self._kept: dict[StepLease, _Kept] = {}
        self._watched: dict[StepLease, _Watched] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def keep(self, lease: StepLease, on_lost: Callable[[], None]) -> None:
        """Start renewing a lease, and call `on_lost` if it is lost."""
        # The thread is not woken: it looks often enough, and most leases are given up long before they are due.
        with self._changed:
            self._kept[lease] = _Kept(lease, on_lost, time.monotonic() + self._terms.renew_seconds)
            put_fence(lease.output_path, lease.check_write)
            self._ensure_thread()

    def drop(self, lease: StepLease) -> None:
        """Stop renewing a lease. If the lease was lost, late writes of its function are refused."""
        if lease.why_lost() is None:
            remove_fence(lease.output_path, lease.check_write)
        with self._changed:
            self._kept.pop(lease, None)
            if self._stopped:
                self._changed.notify()

    def watch(self, lease: StepLease, on_free: Callable[[], None]) -> None:
        """Call `on_free` as soon as a lease is free, then stop watching it."""
        with self._changed:
            self._watched[lease] = _Watched(lease, on_free, time.monotonic() + _FIRST_LOOK_SECONDS)
            self._ensure_thread()
            self._changed.notify()

    def stop(self) -> None:
        """Stop watching other runs' leases. The thread ends when the renewed leases are dropped."""
        with self._changed:
            self._stopped = True
            self._watched.clear()
            self._changed.notify()
            ending = self._thread if not self._kept else None
        if ending is not None:
            ending.join()

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="marin-lease-keeper", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="marin-lease-keeper") as pool:
            while True:
                with self._changed:
                    # A stop before this thread waits would not wake it.
                    if not self._stopped or self._kept:
                        self._changed.wait(self._pause())
                    if self._stopped and not self._kept:
                        self._thread = None  # a lease that is taken after the stop is kept, too, by another
                        return
                    now = time.monotonic()
                    renewals = [kept for kept in self._kept.values() if kept.due <= now]
                    looks = [watched for watched in self._watched.values() if watched.due <= now]
                self._each(pool, self._renew, renewals)
                self._each(pool, self._look, looks)

    def _pause(self) -> float:
        # New leases are due one renewal time from now, so half of it is soon enough to see them.
        pause = self._terms.renew_seconds / 2
        due = [kept.due for kept in self._kept.values()] + [watched.due for watched in self._watched.values()]
        return max(0.0, min(pause, min(due) - time.monotonic())) if due else pause

    def _each(self, pool: ThreadPoolExecutor, do: Callable[[T], None], items: list[T]) -> None:
        run: Callable[[Callable[[T], None], list[T]], Iterable[None]] = map if self._is_local else pool.map
        for _ in run(do, items):
            pass

    def _renew(self, kept: _Kept) -> None:
        lease = kept.lease
        try:
            lease.renew()
        except LeaseLostError as error:
            self._lost(kept, str(error))
            return
        # Any exception of the storage only means that this renewal failed.
        except Exception as error:
            left = lease.seconds_left()
            logger.warning("step %s: lease renewal failed, %.0f s left: %s", lease.label, max(left, 0.0), error)
            if left <= 0:
                lease.lost_event.set()
                self._lost(
                    kept, f"step {lease.label}: its lease could not be renewed for {self._terms.timeout_seconds} s"
                )
                return
            kept.due = time.monotonic() + min(self._terms.renew_seconds / 5, left)
            return
        kept.due = time.monotonic() + self._terms.renew_seconds

    def _lost(self, kept: _Kept, message: str) -> None:
        with self._changed:
            was_kept = self._kept.pop(kept.lease, None) is not None
        if was_kept:
            logger.error("%s", message)
            kept.on_lost()

    def _look(self, watched: _Watched) -> None:
        try:
            is_free = watched.lease.is_free()
        except Exception as error:  # as above
            logger.warning("step %s: cannot read who holds its lease: %s", watched.lease.label, error)
            is_free = False
        if is_free:
            with self._changed:
                was_watched = self._watched.pop(watched.lease, None) is not None
            if was_watched:
                watched.on_free()
            return
        watched.pause = min(watched.pause * _LOOK_GROWTH, self._last_look)
        watched.due = time.monotonic() + watched.pause
