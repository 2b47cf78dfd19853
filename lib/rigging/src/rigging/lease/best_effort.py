"""Leases on filesystems without conditional writes: write, then read back.

They are exclusive among the threads of one process (so memory:// is exact), but not among processes: two that start
within one round trip may both win. A warning reports this once per filesystem.
"""

import contextlib
import functools
import hashlib
import logging
import threading
from collections.abc import Iterator

from rigging.filesystem.atomic import read_bytes_or_none, write_bytes_atomic
from rigging.filesystem.location import url_scheme
from rigging.filesystem.opening import url_to_fs
from rigging.lease.base import Claim, claim_in_turn, fence_from_bytes
from rigging.lease.record import Lease, StoredLease

logger = logging.getLogger(__name__)

FENCE_SUFFIX = ".fence"
_within_process = threading.RLock()


class BestEffortLeaseStore:
    """A lock file on any fsspec filesystem."""

    def __init__(self, url: str) -> None:
        self._url = url
        _warn_once(url_scheme(url))

    @property
    def location(self) -> str:
        return self._url

    @property
    def is_new(self) -> bool:
        """Return False: many of these filesystems have no directories to check."""
        return False

    @contextlib.contextmanager
    def exclusive(self, *, create: bool) -> Iterator[bool]:
        del create  # what keeps directories makes them when writing
        with _within_process:
            yield True

    def read(self) -> StoredLease | None:
        content = read_bytes_or_none(self._url)
        return None if content is None else StoredLease(content, hashlib.sha256(content).hexdigest())

    def claim(self, lease: Lease, replacing: StoredLease | None, *, same_holder: bool) -> Claim | None:
        return claim_in_turn(self, lease, replacing, same_holder=same_holder)

    def renew(self, lease: Lease, replacing: StoredLease) -> StoredLease | None:
        return self.write(lease, replacing)

    def write(self, lease: Lease, replacing: StoredLease | None) -> StoredLease | None:
        if self.read() != replacing:
            return None
        content = lease.to_bytes()
        write_bytes_atomic(self._url, content)
        found = self.read()
        return found if found is not None and found.content == content else None

    def delete(self, stored: StoredLease) -> bool:
        if self.read() != stored:
            return False
        fs, path = url_to_fs(self._url)
        with contextlib.suppress(FileNotFoundError):
            fs.rm_file(path)
        return True

    def read_fence(self) -> int:
        url = self._url + FENCE_SUFFIX
        return fence_from_bytes(read_bytes_or_none(url) or b"", url)

    def write_fence(self, number: int) -> None:
        write_bytes_atomic(self._url + FENCE_SUFFIX, str(number).encode())


@functools.cache
def _warn_once(scheme: str) -> None:
    if scheme != "memory":
        logger.warning("leases on %s:// are best effort: two processes starting at once may both get one", scheme)
