"""The store: the durable records of all acknowledged changes."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.autoscale.closures import Closure
from iris.autoscale.model import SliceRecord
from iris.core.state.changes import Changes
from iris.domain.access import JoinToken, UserToken, WorkerCredential
from iris.domain.errors import StorageUnavailable
from iris.domain.ids import JobId
from iris.domain.usage import LedgerRow
from iris.store.access_rows import (
    CREDENTIAL_COLUMNS,
    JOIN_TOKEN_COLUMNS,
    USER_TOKEN_COLUMNS,
    credential_of,
    credential_row,
    join_token_of,
    join_token_row,
    user_token_of,
    user_token_row,
)
from iris.store.damage import DatabaseDamaged, is_corruption
from iris.store.db import DATABASE_NAME, connect, lock
from iris.store.event_rows import event_row
from iris.store.journal import Entry, Journal
from iris.store.ledger_rows import ledger_row, older_day, read_ledger
from iris.store.ops import Delete, Op, execute, upsert
from iris.store.records import MAY_PASS, StoredRecords
from iris.store.rows import (
    SpecWriter,
    attempt_usage_row,
    budget_row,
    endpoint_row,
    job_row,
    lost_row,
    stopping_row,
    task_row,
    worker_row,
)
from iris.store.slice_rows import (
    CLOSURE_COLUMNS,
    SLICE_COLUMNS,
    closure_of,
    closure_row,
    slice_of,
    slice_row,
)
from rigging.clock import unix_ms
from rigging.errors import Unavailable

_OF_TASKS: Final = ("attempt_usage", "usage_series")


def _writes(changes: Changes, specs: SpecWriter) -> Iterator[Op]:
    if changes.updated:
        texts = [(job_id, *specs.write(changes.jobs[job_id].spec)) for job_id in sorted(changes.updated)]
        yield upsert("job_specs", [(job_id, spec) for job_id, spec, _ in texts])
        if secret := [(job_id, env_vars) for job_id, _, env_vars in texts if env_vars]:
            yield upsert("job_env_vars", secret)
    if changes.jobs:
        yield upsert("jobs", list(map(job_row, changes.jobs.values())))
    if changes.tasks:
        yield upsert("tasks", list(map(task_row, changes.tasks.values())))
    if changes.workers:
        yield upsert("workers", list(map(worker_row, changes.workers.values())))
    if changes.budgets:
        yield upsert("budgets", list(map(budget_row, changes.budgets.values())))
    if changes.usage:
        yield upsert("attempt_usage", [attempt_usage_row(name, use) for name, use in changes.usage.items()])
    if endpoints := [endpoint_row(endpoint) for endpoint in changes.endpoints.values() if endpoint is not None]:
        yield upsert("endpoints", endpoints)
    if stopping := [stopping_row(name, found) for name, found in changes.stopping.items() if found is not None]:
        yield upsert("stopping", stopping)
    if lost := [lost_row(name, found) for name, found in changes.lost.items() if found is not None]:
        yield upsert("lost_attempts", lost)


def _removals(changes: Changes) -> Iterator[Op]:
    if forgotten := sorted(changes.forgotten_jobs):
        yield from (Delete(table, forgotten) for table in ("tasks", *_OF_TASKS, "job_env_vars", "job_specs", "jobs"))
    if changes.forgotten_workers:
        yield Delete("workers", sorted(changes.forgotten_workers))
    if replaced := sorted(changes.replaced):
        yield from (Delete(table, replaced) for table in ("tasks", *_OF_TASKS, "job_env_vars", "jobs"))
    for table, entries in (
        ("endpoints", changes.endpoints),
        ("stopping", changes.stopping),
        ("lost_attempts", changes.lost),
    ):
        if gone := [name for name, entry in entries.items() if entry is None]:
            yield Delete(table, gone)


@dataclass(frozen=True, slots=True)
class UserUse:
    """A user's decayed usage of the cluster at a time (Unix ms), in the units of `iris.core.state.usage`."""

    user: str
    use: float
    at_ms: int


class Store(StoredRecords):
    """The only writer of the database in a state directory. Create it with `Store.open`."""

    def __init__(
        self, connection: sqlite3.Connection, lock_descriptor: int, path: Path, journal: Journal | None = None
    ) -> None:
        super().__init__(connection, path)
        self._journal = journal
        self._lock = lock_descriptor
        self._specs = SpecWriter()
        self._last_event = 0

    @classmethod
    def open(cls, state_dir: Path, generation: int = 0, clock_ms: Callable[[], int] = unix_ms) -> "Store":
        """Open or create the database in `state_dir` (mode 0700, files 0600).

        Args:
            state_dir: The controller's state directory.
            generation: The generation of commits in the journal; 0 writes no journal.
            clock_ms: Returns Unix ms, to date the journal.

        Raise Conflict if another process has the database open, SchemaTooNew, or MarinError if it is not an iris
        database.
        """
        descriptor = lock(state_dir)
        try:
            connection = connect(state_dir)
            journal = Journal.begin(connection, generation, clock_ms)
            store = cls(connection, descriptor, state_dir / DATABASE_NAME, journal)
            with store._reading("the list of jobs"):
                (store._last_event,) = connection.execute("SELECT coalesce(max(sequence), 0) FROM events").fetchone()
            return store
        except BaseException:
            os.close(descriptor)
            raise

    def commit(self, changes: Changes) -> None:
        """Write these changes in one transaction. On return they survive a power failure.

        If nothing was written, raise StorageUnavailable if a retry may succeed, otherwise sqlite3.Error.
        """
        if not changes.is_durable:
            return
        events = [event_row(self._last_event + number, record) for number, record in enumerate(changes.records, 1)]
        self._run([
            *_removals(changes),
            *_writes(changes, self._specs),
            *([upsert("events", events)] if events else []),
        ])  # fmt: skip
        self._last_event += len(events)

    def save_usage(self, accounts: Sequence[UserUse]) -> None:
        """Write these users' accounts in a separate transaction.

        Raise Unavailable if nothing was written.
        """
        if not accounts:
            return
        try:
            self._run([upsert("usage", [(item.user, item.use, item.at_ms) for item in accounts])])
        except sqlite3.Error as error:
            raise Unavailable(f"the use of {len(accounts)} users could not be written: {error}") from error

    def save_access(self, tokens: Sequence[JoinToken], credentials: Sequence[WorkerCredential]) -> None:
        """Write these tokens and credentials in a separate transaction.

        Raise StorageUnavailable if nothing was written.
        """
        rows = {
            "join_tokens": [join_token_row(token) for token in tokens],
            "worker_credentials": [credential_row(credential) for credential in credentials],
        }
        self._run([upsert(table, found) for table, found in rows.items() if found])

    def forget_access(self, tokens: Sequence[str], credentials: Sequence[str]) -> None:
        """Remove join tokens by their ids and credentials by their digests, like `save_access`."""
        gone = {"join_tokens": tokens, "worker_credentials": credentials}
        self._run([Delete(table, keys) for table, keys in gone.items() if keys])

    def load_access(self) -> tuple[list[JoinToken], list[WorkerCredential]]:
        """Return all join tokens, and all credentials of workers, in order of creation."""
        select = self._connection.execute
        with self._reading("the tokens of workers"):
            tokens = select(f"SELECT {', '.join(JOIN_TOKEN_COLUMNS)} FROM join_tokens ORDER BY created_at_ms")
            credentials = select(
                f"SELECT {', '.join(CREDENTIAL_COLUMNS)} FROM worker_credentials ORDER BY created_at_ms"
            )
            return [join_token_of(row) for row in tokens], [credential_of(row) for row in credentials]

    def save_user_tokens(self, tokens: Sequence[UserToken]) -> None:
        """Write these tokens, like `save_access`."""
        self._run([upsert("user_tokens", [user_token_row(token) for token in tokens])])

    def load_user_tokens(self) -> list[UserToken]:
        """Return all tokens of users, in order of creation."""
        with self._reading("the tokens of users"):
            rows = self._connection.execute(
                f"SELECT {', '.join(USER_TOKEN_COLUMNS)} FROM user_tokens ORDER BY created_at_ms"
            )
            return [user_token_of(row) for row in rows]

    def save_notices(self, owed: Sequence[str], settled: Sequence[str]) -> None:
        """Write the changes of pending notices, like `save_access`.

        Args:
            owed: Names of new pending deliveries.
            settled: Names of finished deliveries.
        """
        ops: list[Op] = [upsert("notices", [(name,) for name in owed])] if owed else []
        self._run([*ops, Delete("notices", settled)] if settled else ops)

    def load_notices(self) -> list[str]:
        """Return the names of pending deliveries."""
        with self._reading("the notices that are owed"):
            return [str(name) for (name,) in self._connection.execute("SELECT name FROM notices ORDER BY name")]

    def forget_events(self, before_ms: int, keep: int, at_once: int = 1000) -> int:
        """Remove the oldest events, and return how many. Call it again if it returns `at_once`.

        Args:
            before_ms: Remove events before this time (Unix ms).
            keep: Maximum number of events to keep.
            at_once: Maximum number of events to remove in one transaction.

        Raise StorageUnavailable if nothing was removed.
        """
        oldest = self._connection.execute("SELECT sequence, at_ms FROM events ORDER BY sequence LIMIT ?", (at_once,))
        gone = [number for number, at_ms in oldest if at_ms < before_ms or number <= self._last_event - keep]
        if gone:
            self._run([Delete("events", gone)])
        return len(gone)

    def load_usage(self) -> list[UserUse]:
        """Return the users' accounts."""
        return [UserUse(*row) for row in self._connection.execute("SELECT user, use, at_ms FROM usage ORDER BY user")]

    def save_series(self, rows: Sequence[tuple[JobId, int, str]]) -> None:
        """Write the packed series of tasks (job, index, text), like `save_access`."""
        if rows:
            self._run([upsert("usage_series", rows)])

    def save_ledger(self, rows: Sequence[LedgerRow]) -> None:
        """Write these rows of the ledger, like `save_access`."""
        if rows:
            self._run([upsert("ledger", list(map(ledger_row, rows)))])

    def load_ledger(self) -> tuple[list[LedgerRow], int]:
        """Return the rows of the ledger that may still change, and the end of the counted time (Unix ms)."""
        with self._reading("the ledger"):
            return read_ledger(self._connection)

    def fold_ledger(self, before_ms: int) -> bool:
        """Fold the hours of one day of the ledger into a day. Return False if there is none before `before_ms`."""
        hours, days = older_day(self._connection, before_ms)
        if hours:
            self._run([Delete("ledger", hours), upsert("ledger", days)])
        return bool(hours)

    def save_slices(
        self,
        slices: Sequence[SliceRecord],
        closures: Sequence[Closure] = (),
        forgotten: Sequence[str] = (),
        opened: Sequence[str] = (),
    ) -> None:
        """Write these slices and closures, like `save_access`.

        Args:
            slices: New or changed slices.
            closures: New or changed closures.
            forgotten: Names of slices to remove.
            opened: Keys of closures to remove.
        """
        ops: list[Op] = [
            *([upsert("slices", list(map(slice_row, slices)))] if slices else ()),
            *([upsert("closures", list(map(closure_row, closures)))] if closures else ()),
            *([Delete("slices", forgotten)] if forgotten else ()),
            *([Delete("closures", opened)] if opened else ()),
        ]
        if ops:
            self._run(ops)

    def load_slices(self) -> tuple[list[SliceRecord], list[Closure]]:
        """Return all slices, in the order in which they were wanted, and all closures."""
        select = self._connection.execute
        with self._reading("the slices of scale groups"):
            slices = select(f"SELECT {', '.join(SLICE_COLUMNS)} FROM slices ORDER BY created_ms, rowid")
            closures = select(f"SELECT {', '.join(CLOSURE_COLUMNS)} FROM closures ORDER BY key")
            return [slice_of(row) for row in slices], [closure_of(row) for row in closures]

    def _meant(self, error: sqlite3.Error) -> Exception:
        """Return DatabaseDamaged or StorageUnavailable for an error of SQLite that means it, else the error."""
        if is_corruption(error):
            return DatabaseDamaged(self._path, str(error))
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in MAY_PASS:
            return error
        return StorageUnavailable(f"{self._path}: {error}")

    def _run(self, ops: Sequence[Op]) -> None:
        try:
            entry = self._transact(ops)
        except sqlite3.Error as error:
            raise self._meant(error) from None
        if entry is not None and self._journal is not None:
            self._journal.committed(entry)

    def _transact(self, ops: Sequence[Op]) -> Entry | None:
        connection = self._connection
        entry = None
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # that of a failed commit had failed as well
        connection.execute("BEGIN IMMEDIATE")
        try:
            for op in ops:
                execute(connection, op)
            if self._journal is not None:
                entry = self._journal.write(connection, ops)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return entry

    @property
    def journal(self) -> Journal | None:
        """The commits waiting for replication; None without a remote state."""
        return self._journal

    def close(self) -> None:
        """Close the database and release its lock."""
        self._connection.close()
        os.close(self._lock)
