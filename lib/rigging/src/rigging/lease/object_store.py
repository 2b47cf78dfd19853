"""Leases on object stores with conditional writes and deletes.

Only the lock object decides who holds the lease. Its creation, replacement and deletion require the version that was
read, so only one of several concurrent attempts succeeds. The fencing number is an object beside it. A new holder
increments the number with the same kind of condition, then checks that it still holds the lock object. So numbers grow
in the order of the holders, even if a holder stops or dies in between.

Each write ends with 64 blanks that encode a random number. They cannot be object metadata: S3's version mark is the
ETag, the MD5 of the content alone, and a condition on it would match another version of equal content. Nor can they be
a separate key: older releases that share a lease refuse more than two keys.
"""

import contextlib
import logging
import os

from rigging.errors import MarinError
from rigging.lease.base import Claim, fence_from_bytes
from rigging.lease.objects import RETRY_SECONDS, ConditionalObjects, PatientObjects
from rigging.lease.record import Lease, StoredLease

logger = logging.getLogger(__name__)

FENCE_SUFFIX = ".fence"
_MARK_BITS = 64
_BLANKS = b" \t"


class ObjectLeaseStore:
    """A lock object and its fencing number.

    Args:
        url: The lock object's URL, for messages.
        key: The lock object's key in `objects`.
        objects: The bucket.
        retry_seconds: How long to retry one read, write or delete.
    """

    def __init__(self, url: str, key: str, objects: ConditionalObjects, retry_seconds: float = RETRY_SECONDS) -> None:
        self._url = url
        self._key = key
        self._objects = PatientObjects(objects, retry_seconds)

    @property
    def location(self) -> str:
        return self._url

    def exclusive(self, *, create: bool) -> contextlib.AbstractContextManager[bool]:
        del create  # there are no directories; and conditions do what locks do elsewhere
        return contextlib.nullcontext(True)

    def read(self) -> StoredLease | None:
        return self._objects.get(self._key)

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
        return self._objects.delete(self._key, stored.generation)

    def read_fence(self) -> int:
        found = self._objects.get(self._key + FENCE_SUFFIX)
        return 0 if found is None else fence_from_bytes(found.content, self._url + FENCE_SUFFIX)

    def _take_number(self, worker_id: str, *, keep: bool) -> int:
        """Raise the fencing number for `worker_id`. With `keep`, return the present number if it belongs to that
        holder."""
        key = self._key + FENCE_SUFFIX
        while True:
            found = self._objects.get(key)
            number = 0 if found is None else fence_from_bytes(found.content, self._url + FENCE_SUFFIX)
            # A holder that died between its lock object and its number left the number of the one before.
            if keep and found is not None and _holder_of_number(found.content) == worker_id:
                return number
            # Lost only to others who were holders too: everyone who tries makes way for the next, so this ends.
            if self._put(key, f"{number + 1:020d} {worker_id}".encode(), found) is not None:
                return number + 1

    def _put(self, key: str, content: bytes, replacing: StoredLease | None) -> StoredLease | None:
        marked = content + _mark()
        version = self._objects.put(key, marked, None if replacing is None else replacing.generation)
        return None if version is None else StoredLease(marked, version)


def _holder_of_number(content: bytes) -> str:
    return content.partition(b" ")[2].rstrip(_BLANKS).decode("utf-8", "replace")


def _mark() -> bytes:
    """Return unique blanks for a write. JSON and numbers may end with blanks."""
    number = int.from_bytes(os.urandom(_MARK_BITS // 8), "big")
    return bytes(_BLANKS[number >> bit & 1] for bit in range(_MARK_BITS))
