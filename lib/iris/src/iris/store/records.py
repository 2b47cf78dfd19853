"""The committed records of jobs, tasks and workers, read by the controller's own connection."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import Job, LostAttempt, Stopping, Task, UserBudget, Worker
from iris.domain.errors import StorageUnavailable
from iris.domain.ids import AttemptId, JobId
from iris.domain.states import JobState
from iris.domain.usage import AttemptUse
from iris.store.damage import DatabaseDamaged
from iris.store.history import History
from iris.store.rows import (
    ATTEMPT_USAGE_COLUMNS,
    BUDGET_COLUMNS,
    ENDPOINT_COLUMNS,
    JOB_COLUMNS,
    LOST_COLUMNS,
    STOPPING_COLUMNS,
    TASK_COLUMNS,
    WORKER_COLUMNS,
    SpecReader,
    attempt_usage_of,
    budget_of,
    endpoint_of,
    job_of,
    lost_of,
    spec_of,
    stopping_of,
    task_of,
    worker_of,
)

# What the same commit may get past later: there is room again, the disk answers again, the other process is done.
MAY_PASS: Final = frozenset(
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
    f"SELECT {', '.join(ATTEMPT_USAGE_COLUMNS)} FROM attempt_usage WHERE job_id = ? AND task_index BETWEEN ? AND ? "
    "ORDER BY task_index, attempt"
)
_SELECT_TASKS_OF_JOB: Final = f"SELECT {_TASK_LIST} FROM tasks WHERE job_id = ? ORDER BY task_index"


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


class StoredRecords:
    """Reads what is committed. An ended job is fetched by its name."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._path = path
        self._connection = connection

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
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in MAY_PASS:
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

    @property
    def history(self) -> History:
        """Reads ended jobs in other threads."""
        return History(self._path)

    def tasks_of(self, job_id: JobId) -> list[Task]:
        """Return the committed tasks of a job, in order of index; empty if the job does not exist."""
        with self._reading(f"the tasks of {job_id}"):
            return [task_of(row) for row in self._connection.execute(_SELECT_TASKS_OF_JOB, (job_id,))]

    def series_of(self, job_id: JobId, index: int) -> str:
        """Return the packed series of a task's usage; empty if there is none."""
        sql = "SELECT series FROM usage_series WHERE job_id = ? AND task_index = ?"
        with self._reading(f"what {job_id} has used"):
            row = self._connection.execute(sql, (job_id, index)).fetchone()
            return "" if row is None else str(row[0])

    def usage_of(self, job_id: JobId, first: int, last: int) -> dict[AttemptId, AttemptUse]:
        """Return the committed use of the attempts of tasks `first` to `last`, in the order of tasks and attempts."""
        with self._reading(f"what {job_id} has used"):
            found = self._connection.execute(_SELECT_USAGE_OF_JOB, (job_id, first, last))
            return dict(map(attempt_usage_of, found))
