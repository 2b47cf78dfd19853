"""One copier at a time for each file of a prefix off the local disk, across threads, processes and machines.

Locks are striped: a file's path maps to one of a few lease files below the prefix. Leases leave fencing numbers behind:
stripes avoid one per mirrored file, and share one lease among many small files. Large files have separate stripes, so
that a small copy never waits an hour for its lease.
"""

import contextlib
import math
import os
import threading
import zlib
from collections.abc import Iterator

from rigging.copying.request import Check, CopyRequest, Settings
from rigging.prefixes.paths import LOCK_SUFFIX, PRIVATE_DIRECTORY
from rigging.prefixes.prefix_store import PrefixStore, StoreKind

SMALL_BYTES = 64 * 2**20
_SMALL_STRIPES = 64
_LARGE_STRIPES = 4096


def stripe(request: CopyRequest) -> str:
    """Return the name of a file's lock."""
    number = zlib.crc32(os.fsencode(request.path))
    if request.version.size <= SMALL_BYTES:
        return f"small-{number % _SMALL_STRIPES:02x}"
    return f"large-{number % _LARGE_STRIPES:03x}"


@contextlib.contextmanager
def copy_lock(name: str, destination: PrefixStore, settings: Settings) -> Iterator[Check]:
    """Hold a stripe during the block, after waiting for its holder.

    Args:
        name: The stripe's name.
        destination: The prefix that contains the lock file.
        settings: The renewal interval, and the time after which a lock counts as abandoned, in seconds.

    Yields:
        A function to call between the steps of a copy. It raises LeaseLostError if the stripe is lost.
    """
    url = destination.url(f"{PRIVATE_DIRECTORY}/locks/{name}{LOCK_SUFFIX}")
    with _only_in_process(url):
        if destination.kind is StoreKind.MEMORY:
            # Other processes cannot see the files.
            yield lambda: None
            return
        # Only here: importing the mirror takes a tenth longer with it.
        from rigging.lease.holding import lease

        interval, timeout = settings.heartbeat_interval, settings.heartbeat_timeout
        with lease(url, wait_seconds=math.inf, heartbeat_interval=interval, heartbeat_timeout=timeout) as held:
            yield held.check


class _Waiters:
    """A lock that is dropped when it has neither holder nor waiters."""

    __slots__ = ("count", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0


_in_process: dict[str, _Waiters] = {}
_counting = threading.Lock()


@contextlib.contextmanager
def _only_in_process(key: str) -> Iterator[None]:
    with _counting:
        waiters = _in_process.setdefault(key, _Waiters())
        waiters.count += 1
    try:
        with waiters.lock:
            yield
    finally:
        with _counting:
            waiters.count -= 1
            if not waiters.count:
                _in_process.pop(key, None)


def _forget_after_fork() -> None:
    # The threads that hold or wait for these do not exist in a forked child.
    global _counting
    _counting = threading.Lock()
    _in_process.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
