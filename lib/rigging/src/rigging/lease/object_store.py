"""Leases on object stores that can write and delete on condition that an object is unchanged.

Only the lock object decides who holds the lease: it is created, replaced and deleted on condition of what was read, so
of all who try at once one succeeds. The fencing number is an object beside it, raised by the process that has just
written the lock object, on the same kind of condition; a look at the lock object afterwards makes sure that the number
was taken while the lease was held. Hence numbers grow in the order of the holders, whatever stops or dies in between.

A store may carry a request out and answer with an error all the same, and client libraries repeat requests by
themselves. So every object written here has content of its own, and what became of a write is found out by reading it.
"""

import contextlib
import logging
import os
import time
from typing import Protocol

from rigging.errors import MarinError, Unavailable
from rigging.lease.base import Claim, fence_from_bytes
from rigging.lease.record import Lease, StoredLease
from rigging.timing import ExponentialBackoff

logger = logging.getLogger(__name__)

FENCE_SUFFIX = ".fence"
#: How long one read, write or delete is tried, seconds; well below the time after which a lease may be taken over.
RETRY_SECONDS = 20.0

_LEAST_ATTEMPTS = 4
_MARK_BITS = 64
_BLANKS = b" \t"


class StoreTrouble(Unavailable):
    """The store did not answer, or with an error that may pass: the request may or may not have been carried out."""


class ConditionalObjects(Protocol):
    """Objects by key, each version with a mark of its own (generation, ETag).

    Every method raises StoreTrouble when the outcome is not known, and other MarinErrors for what will not pass
    (no such bucket, not allowed). Each takes a bounded time, seconds.
    """

    @property
    def marks_are_unique(self) -> bool:
        """Say whether no two versions of an object ever have one mark; False where equal contents have equal marks."""
        ...

    def get(self, key: str) -> StoredLease | None:
        """Return the object, None when there is none."""
        ...

    def put(self, key: str, content: bytes, expected: str | None) -> str | None:
        """Write the object if its version is `expected` (None: if there is none); None when it is not.

        Returns:
            The new version's mark.
        """
        ...

    def delete(self, key: str, expected: str) -> bool:
        """Delete the object if its version is `expected`; False when it is not, or there is none."""
        ...


class ObjectLeaseStore:
    """One lock object and its fencing number.

    Args:
        url: For messages.
        key: The lock object's key in `objects`.
        objects: Where it is.
        retry_seconds: How long one read, write or delete is tried.
    """

    def __init__(self, url: str, key: str, objects: ConditionalObjects, retry_seconds: float = RETRY_SECONDS) -> None:
        self._url = url
        self._key = key
        self._objects = objects
        self._retry_seconds = retry_seconds

    @property
    def location(self) -> str:
        return self._url

    def exclusive(self, *, create: bool) -> contextlib.AbstractContextManager[bool]:
        del create  # there are no directories; and conditions do what locks do elsewhere
        return contextlib.nullcontext(True)

    def read(self) -> StoredLease | None:
        return self._get(self._key)

    def claim(self, lease: Lease, replacing: StoredLease | None, *, same_holder: bool) -> Claim | None:
        written = self._put(self._key, lease.to_bytes(), replacing)
        if written is None:
            return None
        try:
            fence = self._take_number(lease.worker_id, keep=same_holder)
            # If this took longer than the timeout, another may have the lease by now, and a lower number.
            found = self.read()
        except MarinError:
            if not same_holder:  # or it may be held elsewhere under the same id
                with contextlib.suppress(MarinError):
                    self.delete(written)
            raise
        holder = None if found is None else Lease.from_bytes(found.content)
        if found is None or holder is None or holder.worker_id != lease.worker_id:
            logger.warning("lease %s: lost to %s while it was being acquired", self._url, lease.worker_id)
            return None
        return Claim(found, fence)

    def renew(self, lease: Lease, replacing: StoredLease) -> StoredLease | None:
        return self._put(self._key, lease.to_bytes(), replacing)

    def delete(self, stored: StoredLease) -> bool:
        deadline = self._retry_deadline(f"delete {self._key}")
        while True:
            try:
                # After an unclear answer, an object that is not this version any more was deleted by that attempt.
                return self._objects.delete(self._key, stored.generation) or deadline.tried
            except StoreTrouble as trouble:
                deadline.wait(trouble)

    def read_fence(self) -> int:
        found = self._get(self._key + FENCE_SUFFIX)
        return 0 if found is None else fence_from_bytes(found.content, self._url + FENCE_SUFFIX)

    def _take_number(self, worker_id: str, *, keep: bool) -> int:
        """Raise the fencing number for `worker_id`; with `keep`, return the present one if it is that holder's."""
        key = self._key + FENCE_SUFFIX
        while True:
            found = self._get(key)
            number = 0 if found is None else fence_from_bytes(found.content, self._url + FENCE_SUFFIX)
            # A holder that died between its lock object and its number left the number of the one before.
            if keep and found is not None and _holder_of_number(found.content) == worker_id:
                return number
            # Lost only to others who were holders too: everyone who tries makes way for the next, so this ends.
            if self._put(key, f"{number + 1:020d} {worker_id}".encode(), found) is not None:
                return number + 1

    def _get(self, key: str) -> StoredLease | None:
        deadline = self._retry_deadline(f"read {key}")
        while True:
            try:
                return self._objects.get(key)
            except StoreTrouble as trouble:
                deadline.wait(trouble)

    def _put(self, key: str, content: bytes, replacing: StoredLease | None) -> StoredLease | None:
        deadline = self._retry_deadline(f"write {key}")
        expected = None if replacing is None else replacing.generation
        marked = content + _mark()
        while True:
            refusal: StoreTrouble | None = None
            try:
                version = self._objects.put(key, marked, expected)
                if version is not None:
                    return StoredLease(marked, version)
            except StoreTrouble as trouble:
                refusal = trouble
            # Refused, or unclear: either way an earlier attempt, here or in the client library, may have been carried
            # out. What was not is safe to repeat, as the condition holds for one of them at most.
            found = self._get(key)
            if found is not None and found.content == marked:
                return found
            if (None if found is None else found.generation) != expected:
                return None
            deadline.wait(refusal)

    def _retry_deadline(self, what: str) -> "_RetryDeadline":
        return _RetryDeadline(f"lease {self._url}: cannot {what}", self._retry_seconds)


class _RetryDeadline:
    """Pauses between the attempts of one request, up to a limit.

    A few attempts are made however long they take: a machine that stood still has not found out anything.
    """

    def __init__(self, what: str, seconds: float) -> None:
        self._failures = 0
        self._what = what
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._backoff = ExponentialBackoff(initial=0.02, maximum=2.0, factor=2.0, jitter=0.5)

    @property
    def tried(self) -> bool:
        """Whether an attempt has failed already."""
        return self._failures > 0

    def wait(self, trouble: StoreTrouble | None) -> None:
        """Pause after an attempt that failed by `trouble` (None: refused); raises Unavailable when time is up."""
        self._failures += 1
        left = self._ends_at - time.monotonic()
        if left <= 0 and self._failures >= _LEAST_ATTEMPTS:
            why = trouble or "refused again and again, though the object is as expected"
            raise Unavailable(f"{self._what}, tried for {self._seconds:g} s: {why}") from trouble
        logger.debug("%s, will try again: %s", self._what, trouble or "refused")
        time.sleep(min(self._backoff.next_interval(), max(left, 0.0)))


def _holder_of_number(content: bytes) -> str:
    return content.partition(b" ")[2].rstrip(_BLANKS).decode("utf-8", "replace")


def _mark() -> bytes:
    """Return blanks, which JSON and numbers may end with, that no other write has."""
    number = int.from_bytes(os.urandom(_MARK_BITS // 8), "big")
    return bytes(_BLANKS[number >> bit & 1] for bit in range(_MARK_BITS))
