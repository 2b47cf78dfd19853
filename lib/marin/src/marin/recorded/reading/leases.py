"""Leases below a storage root: found, read, and removed when that is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from marin.output_files import LOCK_FILE
from marin.recorded.deciding.leases import LeaseSeen, judge
from marin.recorded.reading.store import below, each, files_below
from rigging.lease.holding import store_of
from rigging.lease.identity import HolderState, holder_state
from rigging.lease.record import Lease

_SUFFIX = ".lock"


def find_leases(root: str, now: float) -> list[LeaseSeen]:
    """Return the leases below a directory, by path.

    Args:
        root: The directory.
        now: The time, in seconds since the epoch.
    """
    names = sorted(file.name for file in files_below(root) if file.name.endswith(_SUFFIX))
    return read_leases([below(root, name) for name in names], root, now)


def read_leases(paths: Sequence[str], root: str, now: float) -> list[LeaseSeen]:
    """Return the leases at these lock files; those that are gone meanwhile, and other files, are left out."""
    return [seen for seen in each(lambda path: read_lease(path, now), paths, root) if seen is not None]


def read_lease(path: str, now: float) -> LeaseSeen | None:
    """Return the lease at a lock file; None when there is none, or the file is something else."""
    stored = store_of(path).read()
    if stored is None:
        return None
    lease = Lease.from_bytes(stored.content)
    if lease is None and not path.endswith(LOCK_FILE):
        return None  # another program's lock file
    return judge(path, stored, HolderState.UNKNOWN if lease is None else holder_state(lease.worker_id), now)


def clear_lease(seen: LeaseSeen) -> str | None:
    """Remove a lease that is still as it was seen; reports of its holder are refused from then on.

    Returns:
        Why it was left alone; None when it is gone.
    """
    store = store_of(seen.path)
    with store.exclusive(create=False) as present:
        stored = store.read() if present else None
        if stored is None:
            return None
        if stored != seen.stored:
            return "it was renewed, or taken, meanwhile"
        return None if store.delete(stored) else "it changed meanwhile"
