"""Restores the state from the remote state directory into an empty local directory."""

import logging
import os
import shutil
import sqlite3
import time
from pathlib import Path

from iris.store.db import DATABASE_NAME, lock, migrate_to, schema_version
from iris.store.ops import execute, ops_of_json
from iris.store.replicate.layout import RestorePlan, plan_restore
from iris.store.replicate.remote import SECRETS, RemoteState
from rigging.errors import Conflict
from rigging.filesystem.atomic import sync_names

logger = logging.getLogger(__name__)

_HALF_DONE = "iris.db.restoring"


def restore(remote: RemoteState, state_dir: Path, at_ms: int | None = None) -> int:
    """Create the database and secrets in `state_dir` from the remote state. Return the number of the last commit.

    Args:
        remote: The remote state.
        state_dir: The directory for the database.
        at_ms: Unix ms of the state to restore; None for the latest.

    Raises:
        Conflict: A database already exists, or a controller uses the directory. NotFound: There is no state (old
            enough).
    """
    descriptor = lock(state_dir)
    try:
        target = state_dir / DATABASE_NAME
        if target.exists():
            raise Conflict(f"{target} exists; restore into an empty directory, or move it away first")
        plan = plan_restore(remote.listing(), at_ms)
        work = state_dir / _HALF_DONE
        work.unlink(missing_ok=True)
        remote.get_snapshot(plan.snapshot, work)
        head = _replay(remote, plan, work)
        for name in SECRETS:
            _restore_secret(remote, name, state_dir / name)
        work.rename(target)
        sync_names(target)
        logger.info("restored commit %d from %s", head, remote.url)
        return head
    finally:
        os.close(descriptor)


def _restore_secret(remote: RemoteState, name: str, place: Path) -> None:
    secret = remote.get_secret(name)
    if secret is not None and not place.exists():
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())


def _replay(remote: RemoteState, plan: RestorePlan, database: Path) -> int:
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        # A copy in the making: a crash throws it away, so it need not be safe at every step.
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        (head,) = connection.execute("SELECT sequence FROM replication").fetchone()
        for segment in plan.segments:
            for entry in remote.get_segment(segment):
                if entry.sequence <= head:
                    continue
                schema, ops = ops_of_json(entry.payload)
                if schema > schema_version(connection):
                    migrate_to(connection, schema)
                connection.execute("BEGIN")
                for op in ops:
                    execute(connection, op)
                connection.execute("COMMIT")
                head = entry.sequence
        connection.execute("DELETE FROM journal")
        connection.execute("UPDATE replication SET sequence = ?", (head,))
    finally:
        connection.close()
    with database.open("rb") as file:
        os.fsync(file.fileno())
    return int(head)


def set_aside_all(state_dir: Path) -> Path:
    """Move away a database that this release cannot use, and its logs. Return their new location."""
    descriptor = lock(state_dir)
    try:
        place = set_aside(state_dir, time.strftime("%Y%m%d-%H%M%S"), "older")
        if (state_dir / "logs").is_dir():
            shutil.move(state_dir / "logs", place / "logs")
        return place
    finally:
        os.close(descriptor)


def set_aside(state_dir: Path, name: str, kind: str = "superseded") -> Path:
    """Move the database away for inspection. Return its new location.

    Args:
        state_dir: The directory of the state.
        name: The suffix of the new directory's name.
        kind: The prefix of the new directory's name: the reason.
    """
    place = state_dir / f"{kind}-{name}"
    place.mkdir(mode=0o700, exist_ok=True)
    for suffix in ("", "-wal", "-shm"):
        path = state_dir / (DATABASE_NAME + suffix)
        if path.exists():
            shutil.move(path, place / path.name)
    return place
