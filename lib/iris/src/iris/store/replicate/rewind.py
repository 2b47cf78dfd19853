"""Rewinds: makes the state as of an earlier time the latest state."""

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from iris.store.damage import DATABASE_NAME, database_damage
from iris.store.db import lock
from iris.store.replicate.layout import Generation, plan_restore
from iris.store.replicate.leadership import LEASE_TIMEOUT_S, acquire_lease
from iris.store.replicate.remote import RemoteState, position
from iris.store.replicate.restore import restore, set_aside
from rigging.distributed_lock import create_lock
from rigging.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class Rewound:
    """The last valid commit, and the new location of the previous database."""

    sequence: int
    moved_to: Path | None


def rewind(url: str, state_dir: Path, at_ms: int | None, lease_timeout_s: float = LEASE_TIMEOUT_S) -> Rewound:
    """Restore `state_dir` as of `at_ms` (Unix ms; None: the latest), and invalidate all later commits.

    Args:
        url: The remote state.
        state_dir: The directory for the database.
        at_ms: Unix ms; None for the latest.
        lease_timeout_s: Seconds after which a lease that is not renewed is free.

    Raises:
        Conflict: A controller uses the remote state or the directory. NotFound: There is no state (old enough).
    """
    remote = RemoteState(url)
    try:
        plan_restore(remote.listing(), at_ms)  # the lease would make the directory of a mistyped place
    except NotFound as error:
        raise NotFound(f"remote state {url}: {error}") from None
    lease = create_lock(remote.lease_url, heartbeat_timeout=lease_timeout_s, must_renew=True)
    acquire_lease(lease, url, lease_timeout_s)
    try:
        listing = remote.listing()
        plan_restore(listing, at_ms)  # refused before anything is moved
        generation = max(lease.fencing_token, listing.newest_generation + 1)
        moved_to = _make_room(state_dir)
        sequence = restore(remote, state_dir, at_ms)
        with closing(sqlite3.connect(state_dir / DATABASE_NAME, isolation_level=None)) as connection:
            # This database is the new generation's, so a controller that starts on it keeps it.
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("UPDATE replication SET generation = ?", (generation,))
        remote.put_generation(Generation(generation, sequence))
        return Rewound(sequence, moved_to)
    finally:
        lease.release()


def _place_for(database: Path) -> tuple[str, str]:
    if database_damage(database):
        return "damaged", time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    generation, sequence = position(database)
    return "superseded", f"{generation}-{sequence}"


def _make_room(state_dir: Path) -> Path | None:
    database = state_dir / DATABASE_NAME
    if not database.exists():
        return None
    descriptor = lock(state_dir)
    try:
        kind, name = _place_for(database)
        place = state_dir / f"{kind}-{name}"
        if place.exists():
            raise Conflict(f"{place} already exists; move it away, then restore again")
        return set_aside(state_dir, name, kind)
    finally:
        os.close(descriptor)
