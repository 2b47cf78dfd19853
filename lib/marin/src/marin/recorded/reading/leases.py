"""Leases below a storage root: find, read, and remove them."""

from __future__ import annotations

from collections.abc import Sequence

from marin.output_files import LOCK_FILE
from marin.recorded.deciding.leases import LeaseSeen, judge
from marin.recorded.reading.store import below, each
from marin.stored_files import files_below
from rigging.lease.holding import store_of
from rigging.lease.identity import HolderState, holder_state
from rigging.lease.record import Lease, StoredLease

_SUFFIX = ".lock"


def find_leases(root: str, now: float) -> list[LeaseSeen]:
    """Return the leases below a directory, by path.

    Args:
        root: The directory.
        now: The current time, in seconds since the epoch.
    """
    names = sorted(file.name for file in files_below(root) if file.name.endswith(_SUFFIX))
    return read_leases([below(root, name) for name in names], root, now)


def read_leases(paths: Sequence[str], root: str, now: float) -> list[LeaseSeen]:
    """Return the leases at these lock files. Missing and other files are skipped.

    Args:
        paths: The lock files.
        root: The directory above them.
        now: The current time, in seconds since the epoch.
    """
    return [seen for seen in each(lambda path: read_lease(path, now), paths, root) if seen is not None]


def read_lease(path: str, now: float) -> LeaseSeen | None:
    """Return the lease at a lock file; None if it is missing or not a lease."""
    return _seen(path, store_of(path).read(), now, 0.0)


class LeaseWatch:
    """Observe the lease of an output repeatedly. A lease that stays unchanged for too long has expired.

    Args:
        output_path: The output.
    """

    def __init__(self, output_path: str) -> None:
        self._path = below(output_path, LOCK_FILE)
        self._last: StoredLease | None = None
        self._since = 0.0

    def look(self, now: float) -> LeaseSeen | None:
        """Return the current lease; None if nobody holds one.

        Args:
            now: The current time, in seconds since the epoch.
        """
        stored = store_of(self._path).read()
        if stored != self._last:
            self._last, self._since = stored, now
        return _seen(self._path, stored, now, max(0.0, now - self._since))


def _seen(path: str, stored: StoredLease | None, now: float, unchanged_seconds: float) -> LeaseSeen | None:
    if stored is None:
        return None
    lease = Lease.from_bytes(stored.content)
    if lease is None and not path.endswith(LOCK_FILE):
        return None  # another program's lock file
    holder = HolderState.UNKNOWN if lease is None else holder_state(lease.worker_id)
    return judge(path, stored, holder, now, unchanged_seconds)


def clear_lease(seen: LeaseSeen) -> str | None:
    """Remove a lease that has not changed since it was read. Its holder's later reports are refused.

    Returns:
        Why the lease was kept; None if it is gone.
    """
    store = store_of(seen.path)
    with store.exclusive(create=False) as present:
        stored = store.read() if present else None
        if stored is None:
            return None
        if stored != seen.stored:
            return "it was renewed or taken meanwhile"
        return None if store.delete(stored) else "it changed meanwhile"
