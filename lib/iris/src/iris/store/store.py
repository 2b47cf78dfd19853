"""The store: the durable records of all acknowledged changes."""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.core.state.changes import Changes
from iris.domain.access import JoinToken, UserToken, WorkerCredential
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import Job, LostAttempt, Stopping, Task, UserBudget, Worker
from iris.domain.errors import StorageUnavailable
from iris.domain.ids import AttemptId, JobId
from iris.domain.ledger import LedgerRow
from iris.domain.states import JobState
from iris.domain.usage import AttemptUse
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
from iris.store.history import History
from iris.store.journal import Entry, Journal
from iris.store.ledger_rows import ledger_row, older_day, read_ledger
from iris.store.ops import Delete, Op, execute, upsert
from iris.store.rows import (
    ATTEMPT_USAGE_COLUMNS,
    BUDGET_COLUMNS,
    ENDPOINT_COLUMNS,
    JOB_COLUMNS,
    LOST_COLUMNS,
    STOPPING_COLUMNS,
    TASK_COLUMNS,
    WORKER_COLUMNS,
    Row,
    SpecReader,
    SpecWriter,
    attempt_usage_of,
    attempt_usage_row,
    budget_of,
    budget_row,
    endpoint_of,
    endpoint_row,
    job_of,
    job_row,
    lost_of,
    lost_row,
    spec_of,
    stopping_of,
    stopping_row,
    task_of,
    task_row,
    worker_of,
    worker_row,
)
from rigging.clock import unix_ms
from rigging.errors import Unavailable

# What the same commit may get past later: there is room again, the disk answers again, the other process is done.
_MAY_PASS: Final = frozenset(
    {
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM),
    }
)
_TASK_LIST: Final = ", ".join(f"tasks.{name}" for name in TASK_COLUMNS)
_SELECT_JOBS: Final = (
    f"SELECT {', '.join(f'jobs.{name}' for name in JOB_COLUMNS)}, job_specs.spec, job_env_vars.env_vars "
    "FROM jobs JOIN job_specs USING (job_id) LEFT JOIN job_env_vars ON job_env_vars.job_id = jobs.job_id "
)
_ONLY_LIVE: Final = f"WHERE jobs.state < {int(JobState.SUCCEEDED)}"
_SELECT_JOB: Final = f"{_SELECT_JOBS} WHERE jobs.job_id = ?"
_SELECT_TASKS: Final = f"SELECT {_TASK_LIST} FROM tasks ORDER BY job_id, task_index"
_SELECT_LIVE_TASKS: Final = (
    f"SELECT {_TASK_LIST} FROM jobs CROSS JOIN tasks USING (job_id) "
    f"WHERE jobs.state < {int(JobState.SUCCEEDED)} ORDER BY tasks.job_id, task_index"
)
_SELECT_USAGE_OF_JOB: Final = (
    f"SELECT {', '.join(ATTEMPT_USAGE_COLUMNS)} FROM attempt_usage WHERE job_id = ? ORDER BY task_index, attempt"
)
_SELECT_TASKS_OF_JOB: Final = f"SELECT {_TASK_LIST} FROM tasks WHERE job_id = ? ORDER BY task_index"


def _writes(changes: Changes, fresh: Sequence[Job], specs: SpecWriter) -> list[Op]:
    rows: dict[str, list[Row]] = {}
    if fresh:
        texts = [(job.job_id, *specs.write(job.spec)) for job in fresh]
        rows["job_specs"] = [(job_id, spec) for job_id, spec, _ in texts]
        rows["job_env_vars"] = [(job_id, env_vars) for job_id, _, env_vars in texts if env_vars]
    rows["jobs"] = [job_row(job) for job in changes.jobs.values()]
    rows["tasks"] = [task_row(task) for task in changes.tasks.values()]
    rows["workers"] = [worker_row(worker) for worker in changes.workers.values()]
    rows["budgets"] = [budget_row(budget) for budget in changes.budgets.values()]
    rows["endpoints"] = [endpoint_row(endpoint) for endpoint in changes.endpoints.values() if endpoint is not None]
    rows["stopping"] = [stopping_row(name, found) for name, found in changes.stopping.items() if found is not None]
    rows["attempt_usage"] = [attempt_usage_row(name, use) for name, use in changes.usage.items()]
    rows["lost_attempts"] = [lost_row(name, found) for name, found in changes.lost.items() if found is not None]
    return [upsert(table, found) for table, found in rows.items() if found]


def _removals(changes: Changes, replaced: Sequence[JobId]) -> list[Op]:
    forgotten = sorted(changes.forgotten_jobs)
    names: list[tuple[str, Sequence[str]]] = [
        *((table, forgotten) for table in ("tasks", "attempt_usage", "job_env_vars", "job_specs", "jobs")),
        ("workers", sorted(changes.forgotten_workers)),
        *((table, replaced) for table in ("tasks", "attempt_usage", "job_env_vars")),
        ("endpoints", [name for name, endpoint in changes.endpoints.items() if endpoint is None]),
        ("stopping", [name for name, attempt in changes.stopping.items() if attempt is None]),
        ("lost_attempts", [name for name, attempt in changes.lost.items() if attempt is None]),
    ]
    return [Delete(table, gone) for table, gone in names if gone]


@dataclass(frozen=True, slots=True)
class UserUse:
    """A user's decayed usage of the cluster at a time (Unix ms), in the units of `iris.core.state.usage`."""

    user: str
    use: float
    at_ms: int


@dataclass(frozen=True, slots=True)
class Stored:
    """All records: jobs in order of submission, tasks in order of job id and index, and the number of the next job."""

    jobs: tuple[Job, ...]
    tasks: tuple[Task, ...]
    workers: tuple[Worker, ...]
    budgets: tuple[UserBudget, ...] = ()
    endpoints: tuple[RegisteredEndpoint, ...] = ()
    stopping: tuple[tuple[AttemptId, Stopping], ...] = ()
    lost: tuple[tuple[AttemptId, LostAttempt], ...] = ()
    next_sequence: int = 1


class Store:
    """The only writer of the database in a state directory. Create it with `Store.open`."""

    def __init__(
        self, connection: sqlite3.Connection, lock_descriptor: int, path: Path, journal: Journal | None = None
    ) -> None:
        self._path = path
        self._connection = connection
        self._journal = journal
        self._lock = lock_descriptor
        # The written number of each job that has not ended: its spec need not be written again.
        self._written: dict[JobId, int] = {}
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

        A job with a new sequence replaces the stored job with the same name, its spec and its tasks. If nothing was
        written, raise StorageUnavailable if a retry may succeed, otherwise sqlite3.Error.
        """
        if not changes.is_durable:
            return
        with self._committing():
            fresh, replaced = self._fresh(changes)
        events = [event_row(self._last_event + number, record) for number, record in enumerate(changes.records, 1)]
        self._run([
            *_removals(changes, replaced),
            *_writes(changes, fresh, self._specs),
            *([upsert("events", events)] if events else []),
        ])  # fmt: skip
        self._last_event += len(events)
        for job_id in changes.forgotten_jobs:
            self._written.pop(job_id, None)
        for job in changes.jobs.values():
            if job.state.is_terminal:
                self._written.pop(job.job_id, None)
            else:
                self._written[job.job_id] = job.sequence

    def _fresh(self, changes: Changes) -> tuple[list[Job], list[JobId]]:
        """Return the jobs whose specs must be written, and those of them that replace another job of their name."""
        fresh, replaced = [], []
        for job in changes.jobs.values():
            number = self._written.get(job.job_id)
            if number is None:
                row = self._connection.execute("SELECT sequence FROM jobs WHERE job_id = ?", (job.job_id,)).fetchone()
                number = None if row is None else row[0]
            if number != job.sequence or job.job_id in changes.updated:
                fresh.append(job)
            if number not in (None, job.sequence):
                replaced.append(job.job_id)
        return fresh, replaced

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

    @contextmanager
    def _committing(self) -> Iterator[None]:
        """Context manager: turn SQLite's errors into DatabaseDamaged or StorageUnavailable, where they mean that."""
        try:
            yield
        except sqlite3.Error as error:
            if is_corruption(error):
                raise DatabaseDamaged(self._path, str(error)) from None
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _MAY_PASS:
                raise
            raise StorageUnavailable(f"{self._path}: {error}") from error

    def _run(self, ops: Sequence[Op]) -> None:
        with self._committing():
            entry = self._transact(ops)
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

    def load(self, lean: bool = False) -> Stored:
        """Read all records.

        Args:
            lean: Load for the start of a controller: without ended jobs, which `job_of` and `tasks_of` return, and with
                a check that the tasks of live jobs are complete.

        Raise DatabaseDamaged.
        """
        with self._reading("the records of jobs, tasks and workers"):
            found = self._load(lean)
            # Of ended jobs it is noticed when somebody asks for one: to count a million takes seconds.
            (jobs,) = self._connection.execute(f"SELECT count(*) FROM jobs {_ONLY_LIVE if lean else ''}").fetchone()
        if jobs != len(found.jobs):
            raise DatabaseDamaged(self._path, f"{jobs - len(found.jobs)} jobs have no description")
        counts = Counter(task.job_id for task in found.tasks)
        for job in found.jobs if lean else ():
            if not job.state.is_terminal and counts[job.job_id] != job.spec.replicas:
                what = f"{job.job_id} has {counts[job.job_id]} of its {job.spec.replicas} tasks"
                raise DatabaseDamaged(self._path, what)
        return found

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        # The errors themselves are not told: they show what they could not read, which may be secret.
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _MAY_PASS:
                raise StorageUnavailable(f"{self._path}: {error}") from error
            raise DatabaseDamaged(self._path, f"{what} cannot be read ({type(error).__name__})") from None

    def _load(self, lean: bool) -> Stored:
        execute = self._connection.execute
        specs = SpecReader()
        jobs = tuple(
            job_of(row, specs.read(JobId(row[0]), row[-2], row[-1]))
            for row in execute(f"{_SELECT_JOBS} {_ONLY_LIVE if lean else ''} ORDER BY +sequence")
        )
        tasks = tuple(map(task_of, execute(_SELECT_LIVE_TASKS if lean else _SELECT_TASKS)))
        workers = tuple(
            worker_of(row) for row in execute(f"SELECT {', '.join(WORKER_COLUMNS)} FROM workers ORDER BY worker_id")
        )
        budgets = tuple(map(budget_of, execute(f"SELECT {', '.join(BUDGET_COLUMNS)} FROM budgets ORDER BY user")))
        columns = ", ".join(ENDPOINT_COLUMNS)
        endpoints = tuple(
            map(endpoint_of, execute(f"SELECT {columns} FROM endpoints ORDER BY registered_at_ms, endpoint_id"))
        )
        columns = ", ".join(STOPPING_COLUMNS)
        stopping = tuple(map(stopping_of, execute(f"SELECT {columns} FROM stopping ORDER BY attempt_id")))
        columns = ", ".join(LOST_COLUMNS)
        lost = tuple(map(lost_of, execute(f"SELECT {columns} FROM lost_attempts ORDER BY attempt_id")))
        (last,) = execute("SELECT coalesce(max(sequence), 0) FROM jobs").fetchone()
        return Stored(jobs, tasks, workers, budgets, endpoints, stopping, lost, last + 1)

    def job_of(self, job_id: JobId) -> Job | None:
        """Return a committed job; None if no job has that name."""
        with self._reading(f"job {job_id}"):
            row = self._connection.execute(_SELECT_JOB, (job_id,)).fetchone()
            return None if row is None else job_of(row, spec_of(job_id, row[-2], row[-1]))

    def job_of_key(self, key: str) -> JobId | None:
        """Return the committed job that was submitted with an idempotency key, or None."""
        sql = "SELECT job_id FROM jobs WHERE idempotency_key = ? AND idempotency_key != ''"
        with self._reading("the keys of jobs"):
            row = self._connection.execute(sql, (key,)).fetchone()
            return None if row is None else JobId(row[0])

    @property
    def history(self) -> History:
        """Reads ended jobs in other threads."""
        return History(self._path)

    def tasks_of(self, job_id: JobId) -> list[Task]:
        """Return the committed tasks of a job, in order of index; empty if the job does not exist."""
        with self._reading(f"the tasks of {job_id}"):
            return [task_of(row) for row in self._connection.execute(_SELECT_TASKS_OF_JOB, (job_id,))]

    def usage_of(self, job_id: JobId) -> dict[AttemptId, AttemptUse]:
        """Return the committed use of a job's attempts, in the order of tasks and attempts."""
        with self._reading(f"what {job_id} has used"):
            return dict(map(attempt_usage_of, self._connection.execute(_SELECT_USAGE_OF_JOB, (job_id,))))

    def close(self) -> None:
        """Close the database and release its lock."""
        self._connection.close()
        os.close(self._lock)
