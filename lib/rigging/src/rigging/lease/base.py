"""The lock that acquires, renews and releases a lease on any store.

A lease is one small file, exactly `{"worker_id": ..., "timestamp": ...}`. Older readers reject more keys, so the
fencing number is in a second file beside it. The rules are the same on every store. The store only reads, writes and
deletes these two files, and declares how exclusive it is.
"""

import logging
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from rigging.clock import SYSTEM_CLOCK, Clock, unix_ms
from rigging.errors import InvalidRequest, LeaseLost
from rigging.lease.identity import acquisition_id, give_up
from rigging.lease.record import HEARTBEAT_TIMEOUT, SKEW_ALLOWANCE, Lease, StoredLease, holder_of
from rigging.lease.staleness import LeaseObserver

logger = logging.getLogger(__name__)

#: Of a lock file at most 64 KB are read, and a character may take twelve bytes there.
MOST_WORKER_ID_CHARACTERS = 4096

#: How often one call tries again when its own identity changes the lease elsewhere at the same time.
_REENTRY_ATTEMPTS = 8


class LeaseLostError(LeaseLost):
    """The lease is not held, or was taken over, released or removed."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease that was just acquired: the lock file's new content, and the holder's fencing number."""

    stored: StoredLease
    fence: int


class LeaseStore(Protocol):
    """The storage of one lock file and its fencing number."""

    @property
    def location(self) -> str:
        """The lock file's path or URL, for messages."""
        ...

    def exclusive(self, *, create: bool) -> AbstractContextManager[bool]:
        """Return a context that excludes others while the lock file changes, as far as this store can.

        Args:
            create: Create the directory if it is missing.

        Returns:
            A context that gives False if the directory is missing and was not created: then there is no lease.
        """
        ...

    def read(self) -> StoredLease | None:
        """Return the lock file, or None. Needs no exclusion."""
        ...

    def claim(self, lease: Lease, replacing: StoredLease | None, *, same_holder: bool) -> Claim | None:
        """Write `lease` in place of `replacing`, and give its holder a fencing number. Call it within `exclusive`.

        Args:
            lease: The new content.
            replacing: The content that was read; None for no lock file.
            same_holder: The holder stays the same and keeps its number.

        Returns:
            None if someone else changed the lock file meanwhile.
        """
        ...

    def renew(self, lease: Lease, replacing: StoredLease) -> StoredLease | None:
        """Write `lease` in place of `replacing`; return None if someone else changed it meanwhile. Call it within
        `exclusive`.
        """
        ...

    def delete(self, stored: StoredLease) -> bool:
        """Delete the lock file; return False if it is no longer `stored`. Call it within `exclusive`."""
        ...

    def read_fence(self) -> int:
        """Return the last fencing number; 0 if there is none. Call it within `exclusive`."""
        ...


class FenceFile(Protocol):
    """A store that excludes others while it changes its two files in turn."""

    def read_fence(self) -> int:
        """Return the last fencing number; 0 if there is none."""
        ...

    def write_fence(self, number: int) -> None:
        """Store the fencing number."""
        ...

    def write(self, lease: Lease, replacing: StoredLease | None) -> StoredLease | None:
        """Write `lease` in place of `replacing`, which was read in the same exclusion."""
        ...


def claim_in_turn(store: FenceFile, lease: Lease, replacing: StoredLease | None, *, same_holder: bool) -> Claim | None:
    """Claim like `LeaseStore.claim`, on a store that excludes others itself.

    Args:
        store: The store of the lease.
        lease: The lease to write.
        replacing: The present lease, or None.
        same_holder: Whether the present lease is the holder's own, so that it keeps its number.
    """
    fence = store.read_fence()
    if not same_holder or fence == 0:
        fence += 1
        # Before the lock file: a number wasted by a crash in between does no harm, one given twice does.
        store.write_fence(fence)
    stored = store.write(lease, replacing)
    return None if stored is None else Claim(stored, fence)


@dataclass(frozen=True, slots=True)
class _Held:
    """One acquisition: its id, the last written content, its number, and its process."""

    worker_id: str
    stored: StoredLease
    fence: int
    process: int


def fence_from_bytes(content: bytes, location: str) -> int:
    """Return a fencing number: 0 for no content, and a very large one for unreadable content, so that it still grows.

    Text after the number and a space is ignored.
    """
    if not content:
        return 0
    try:
        return int(content.split()[0])
    except (ValueError, IndexError):
        # Milliseconds of today are far above any count of holders.
        number = unix_ms()
        logger.warning("%s: unreadable fencing number %r; continuing from %d", location, content[:80], number)
        return number


class LeaseLock:
    """Acquire, renew and release one lease.

    Without a worker_id every acquisition has a unique id, so that no other process, thread or call can acquire it too.
    An explicit worker_id is the identity: its holder may acquire again.

    Args:
        store: The storage of the lease.
        worker_id: The holder's identity.
        heartbeat_timeout: Seconds without a renewal after which others may take the lease.
        skew_allowance: Seconds added to the timeout if only the timestamp is known, because wall clocks differ.
        must_renew: As in `create_lock`.
        clock: The clock; replaced in tests.
    """

    def __init__(
        self,
        store: LeaseStore,
        worker_id: str | None = None,
        *,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        skew_allowance: float = SKEW_ALLOWANCE,
        must_renew: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._worker_id = None if worker_id is None else _checked_worker_id(worker_id)
        self._clock = clock
        self._held: _Held | None = None
        self._observer = LeaseObserver(
            store.location, heartbeat_timeout, skew_allowance, must_renew=must_renew, clock=clock
        )

    @property
    def location(self) -> str:
        """The lock file's path or URL."""
        return self._store.location

    @property
    def fencing_token(self) -> int:
        """The number of this acquisition. It grows with each change of holder, so that late writes can be detected.

        Raises:
            LeaseLostError: This lock does not hold the lease.
        """
        held = self._current()
        if held is None:
            raise LeaseLostError(f"lease {self.location} is not held: it has no fencing number")
        return held.fence

    @property
    def worker_id(self) -> str:
        """The id in the lock file while the lease is held; "" if it is not held and none was given."""
        held = self._current()
        return held.worker_id if held else self._worker_id or ""

    def try_acquire(self) -> bool:
        """Take the lease if it is free, stale, or held by the same explicit worker_id. Never wait for its holder.

        Raises:
            Unavailable: The storage does not answer clearly. The lease is not held.
        """
        with self._store.exclusive(create=True):
            for _ in range(_REENTRY_ATTEMPTS):
                stored = self._store.read()
                ours = self._worker_id is not None and holder_of(stored) == self._worker_id
                if self._observer.live(stored) is not None and not ours:
                    return False
                if self._claim(stored, ours):
                    return True
                # Someone was faster; if that was the same holder elsewhere, there is room for both.
                if self._worker_id is None:
                    return False
        return False

    def _claim(self, stored: StoredLease | None, ours: bool) -> bool:
        worker_id = self._worker_id or acquisition_id()
        claim = self._store.claim(Lease(worker_id, self._clock.now()), stored, same_holder=ours)
        if claim is None:
            return False
        self._held = _Held(worker_id, claim.stored, claim.fence, os.getpid())
        self._observer.forget()
        if stored is not None and not ours:
            logger.warning("lease %s: %s took it over from %s", self.location, worker_id, holder_of(stored) or "nobody")
        return True

    def refresh(self) -> None:
        """Renew the lease.

        Raises:
            LeaseLostError: The lease is no longer held. The message names its holder.
        """
        with self._store.exclusive(create=False) as present:
            stored = self._renew() if present else None
            if stored is not None and self._is_ours(stored):
                return
            lost_by = self.worker_id or "nobody"
            self._held = None
        now_held = (
            "it was removed" if stored is None else f"now held by {holder_of(stored) or 'an unreadable lock file'}"
        )
        raise LeaseLostError(f"lease {self.location} is lost to {lost_by}: {now_held}")

    def _renew(self) -> StoredLease | None:
        """Renew the lease if this lock holds it, and return the present lock file."""
        held = self._current()
        lease = Lease(self.worker_id, self._clock.now())
        # What this lock wrote last is most often still there: then there is no need to read it.
        renewed = None if held is None else self._store.renew(lease, held.stored)
        if renewed is None:
            found = self._store.read()
            if found is None or not self._is_ours(found):
                return found
            renewed = self._store.renew(lease, found)
        if renewed is None:
            return self._store.read()
        if held is not None:
            self._held = replace(held, stored=renewed)
        return renewed

    def release(self) -> bool:
        """Release the lease, and return whether this lock still held it. Another holder's lease is not changed."""
        held = self._current()
        try:
            with self._store.exclusive(create=False) as present:
                return present and self._delete()
        except BaseException:
            if held is not None and self._worker_id is None:
                give_up(held.worker_id)  # or others would wait for as long as this process runs
            raise
        finally:
            self._held = None

    def _delete(self) -> bool:
        held = self._current()
        if held is not None and self._store.delete(held.stored):
            return True
        found = self._store.read()
        return found is not None and self._is_ours(found) and self._store.delete(found)

    def has_active_holder(self) -> bool:
        """Return whether the lease is held and renewed, by this lock or another."""
        return self._observer.live(self._store.read()) is not None

    def holder(self) -> Lease | None:
        """Return the lease in its file, stale or not; None if it is missing or unreadable."""
        stored = self._store.read()
        return None if stored is None else Lease.from_bytes(stored.content)

    def _current(self) -> _Held | None:
        # A forked child has a copy of this object, but the lease is its parent's.
        return self._held if self._held is not None and self._held.process == os.getpid() else None

    def _is_ours(self, stored: StoredLease) -> bool:
        held = self._current()
        mine = held.worker_id if held else self._worker_id
        if mine is None or holder_of(stored) != mine:
            return False
        if held is not None and held.stored == stored:
            return True
        # The same chosen identity may have lost the lease and taken it again elsewhere: then this hold was broken.
        return held is None or self._worker_id is None or self._store.read_fence() <= held.fence


def _checked_worker_id(worker_id: str) -> str:
    if len(worker_id) > MOST_WORKER_ID_CHARACTERS:
        raise InvalidRequest(
            f"worker_id {worker_id[:40]!r}... has {len(worker_id)} characters; at most "
            f"{MOST_WORKER_ID_CHARACTERS} are allowed"
        )
    return worker_id
