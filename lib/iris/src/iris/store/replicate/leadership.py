"""Takes over a state directory: acquires the lease, and finds out whether the local or the remote state is newer."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.store.damage import DATABASE_NAME, DatabaseDamaged, database_damage
from iris.store.replicate.layout import Generation, Listing, plan_restore
from iris.store.replicate.remote import RemoteState, first_waiting, position
from iris.store.replicate.restore import restore, set_aside
from rigging.distributed_lock import LeaseLock, create_lock
from rigging.errors import Conflict

logger = logging.getLogger(__name__)

LEASE_TIMEOUT_S: Final = 15.0
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Leadership:
    """The right to write the remote state: the lease and the generation.

    Args:
        needs_snapshot: Whether the remote state needs a snapshot of the local database before the controller may
            answer.
    """

    remote: RemoteState
    lock: LeaseLock
    generation: int
    needs_snapshot: bool


def acquire(url: str, state_dir: Path, lease_timeout_s: float = LEASE_TIMEOUT_S) -> Leadership:
    """Take the lease and make the local state the newest. Blocks.

    Args:
        url: The remote state.
        state_dir: The local state.
        lease_timeout_s: Seconds after which a lease that is not renewed is free.

    Raises:
        DatabaseDamaged: The local database is damaged, so it is unknown which state is newer.
        Conflict: Another controller holds the lease, or the local database does not belong to the remote history.
    """
    damage = database_damage(state_dir / DATABASE_NAME)
    if damage:
        raise DatabaseDamaged(state_dir / DATABASE_NAME, damage, url)
    remote = RemoteState(url)
    lock = create_lock(remote.lease_url, heartbeat_timeout=lease_timeout_s, must_renew=True)
    acquire_lease(lock, url, lease_timeout_s)
    try:
        listing = remote.listing()
        generation = max(lock.fencing_token, listing.newest_generation + 1)
        needs_snapshot = _reconcile(remote, listing, state_dir)
        database = state_dir / DATABASE_NAME
        base = position(database)[1] if database.exists() else 0
        remote.put_generation(Generation(generation, base))
        return Leadership(remote, lock, generation, needs_snapshot)
    except BaseException:
        lock.release()
        raise


def acquire_lease(
    lock: LeaseLock,
    url: str,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Take the lease of a remote state, waiting for a dead holder's lease to expire.

    Args:
        lock: The lease.
        url: The remote state, for messages.
        timeout_s: Seconds after which a lease that is not renewed is free.
        clock: Returns monotonic seconds.
        sleep: Sleeps for seconds.

    Raises:
        Conflict: A live holder renews the lease.
    """
    first = lock.holder()
    deadline = clock() + 1.5 * timeout_s
    while True:
        # Looked at before the try: a process that was held up meanwhile must not give up without one more.
        is_last = clock() > deadline
        if lock.try_acquire():
            return
        holder = lock.holder()
        renewed = holder is not None and first is not None and holder.timestamp != first.timestamp
        if renewed or is_last:
            who = "nobody that can be read" if holder is None else holder.worker_id
            raise Conflict(f"another controller uses the remote state {url}: its lease is held and renewed by {who}")
        sleep(_POLL_S)


def _reconcile(remote: RemoteState, listing: Listing, state_dir: Path) -> bool:
    """Restore if the remote state is newer. Return whether a snapshot is needed."""
    database = state_dir / DATABASE_NAME
    if not listing.snapshots:
        return True
    if not database.exists():
        restore(remote, state_dir)
        return False
    generation, sequence = position(database)
    head = plan_restore(listing).head
    if generation == 0:
        raise Conflict(
            f"{database} is no part of the history in {remote.url}: it was used without remote_state_dir, or with "
            "another one. Move it away to continue from the remote state, or give an empty remote_state_dir"
        )
    if generation < listing.newest_generation or sequence < head:
        place = set_aside(state_dir, f"{generation}-{sequence}")
        logger.warning("the remote state is newer than the database, which was moved to %s", place)
        restore(remote, state_dir)
        return False
    # What is between the two waits in the journal of the database, unless remote objects were removed.
    waiting = first_waiting(database)
    return sequence > head and (waiting is None or waiting > head + 1)
