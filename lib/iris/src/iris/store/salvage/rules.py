"""Rules for a salvaged database: whole records and jobs stay; live jobs that are not whole are ended."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from iris.domain.entities import NO_TASKS, Job, Stopping, Task
from iris.domain.ids import JobId, WorkerId, attempt_id, parent_of, task_id
from iris.domain.states import JobState, TaskState
from iris.store.access_rows import (
    CREDENTIAL_COLUMNS,
    JOIN_TOKEN_COLUMNS,
    USER_TOKEN_COLUMNS,
    credential_of,
    join_token_of,
    user_token_of,
)
from iris.store.ops import Delete, execute, upsert
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
    attempt_usage_of,
    budget_of,
    endpoint_of,
    job_of,
    job_row,
    lost_of,
    spec_of,
    stopping_of,
    stopping_row,
    task_of,
    task_row,
    worker_of,
)
from iris.store.salvage.logs import Leftovers

_SHOWN: Final = 5
ENDED: Final = "the controller's database was damaged, and not all of this job could be read"
MAY_HAVE_ENDED: Final = "the controller's database was damaged, and what became of this job since cannot be read"
_READERS: Final[dict[str, tuple[tuple[str, ...], Callable[[Row], object]]]] = {
    "tasks": (TASK_COLUMNS, task_of),
    "workers": (WORKER_COLUMNS, worker_of),
    "budgets": (BUDGET_COLUMNS, budget_of),
    "endpoints": (ENDPOINT_COLUMNS, endpoint_of),
    "stopping": (STOPPING_COLUMNS, stopping_of),
    "lost_attempts": (LOST_COLUMNS, lost_of),
    "join_tokens": (JOIN_TOKEN_COLUMNS, join_token_of),
    "user_tokens": (USER_TOKEN_COLUMNS, user_token_of),
    "worker_credentials": (CREDENTIAL_COLUMNS, credential_of),
    "attempt_usage": (ATTEMPT_USAGE_COLUMNS, attempt_usage_of),
}


def mend(
    connection: sqlite3.Connection,
    damaged: frozenset[str],
    now_ms: int,
    older: str = "",
    leftovers: Leftovers | None = None,
) -> tuple[str, ...]:
    """Remove records that are not whole, and end live jobs of which something is missing; returns what to tell.

    Args:
        connection: The salvaged database.
        damaged: Tables of which more was there than could be read.
        now_ms: Unix ms.
        older: Which commits are missing; empty: none is known to be. leftovers: What the logs tell.
        leftovers: Jobs that the logs show.
    """
    notes = [f"more was in the table {name} than could be read" for name in sorted(damaged)]
    if older:
        notes.append(f"{older}: what is here may be older than what was acknowledged")
    connection.execute("BEGIN")
    notes += _drop_unreadable(connection)
    jobs, left_out = _jobs(connection)
    if left_out:
        execute(connection, Delete("jobs", left_out))
        notes.append(f"{len(left_out)} jobs are left out, as not all of their record can be read: {_names(left_out)}")
    _drop_orphans(connection)
    ended = _end_incomplete(connection, jobs, damaged, now_ms)
    if ended:
        notes.append(f"{len(ended)} live jobs are ended, as not all of them can be read: {_names(ended)}")
    leftovers = leftovers or Leftovers()
    notes += _end_live(connection, jobs, frozenset(ended), now_ms, _outdated(connection, leftovers, bool(older)))
    _drop_endpoints(connection)
    notes += _heed_logs(connection, jobs, leftovers)
    connection.execute("COMMIT")
    return tuple(notes)


def _outdated(connection: sqlite3.Connection, leftovers: Leftovers, is_older: bool) -> frozenset[str] | None:
    """Jobs that went on after what is here, as the numbers in the names of their logs tell; None: any may have."""
    if is_older:
        return None
    return frozenset(
        name
        for name, index, attempt in connection.execute("SELECT job_id, task_index, attempt FROM tasks")
        if leftovers.attempts.get(name, {}).get(index, attempt) > attempt
    )


def _end_live(
    connection: sqlite3.Connection,
    jobs: dict[JobId, Job],
    ended: frozenset[str],
    now_ms: int,
    outdated: frozenset[str] | None,
) -> list[str]:
    """End the live jobs among `outdated` (None: all): each may have ended in what is lost, and must not run again."""
    live = sorted(
        name
        for name, job in jobs.items()
        if not job.state.is_terminal
        and name not in ended
        and (outdated is None or any(name == other or name.startswith(f"{other}/") for other in outdated))
    )
    for name in live:
        rows = connection.execute(f"SELECT {', '.join(TASK_COLUMNS)} FROM tasks WHERE job_id = ?", (name,)).fetchall()
        _end(connection, jobs[JobId(name)], {task.index: task for task in map(task_of, rows)}, now_ms, MAY_HAVE_ENDED)
    if not live:
        return []
    return [f"{len(live)} live jobs are ended, as they may have ended already, and would run again: {_names(live)}"]


def _heed_logs(connection: sqlite3.Connection, jobs: dict[JobId, Job], leftovers: Leftovers) -> list[str]:
    """Give no attempt a number that was used, and name the jobs of which only logs are left."""
    leftovers.unknown[:] = sorted(name for name in leftovers.attempts if name not in jobs)
    for name, numbers in leftovers.attempts.items():
        for index, attempt in numbers.items():
            connection.execute(  # those of a live job are as here, or it was ended above
                "UPDATE tasks SET attempt = ? WHERE job_id = ? AND task_index = ? AND attempt < ?",
                (attempt, name, index, attempt),
            )
    if not leftovers.unknown:
        return []
    return [
        f"{len(leftovers.unknown)} jobs are lost, of which only logs are left, which are moved to the damaged files; "
        f"what runs of them is stopped when its worker comes back: {_names(leftovers.unknown)}"
    ]


def _drop_unreadable(connection: sqlite3.Connection) -> list[str]:
    notes = []
    for table, (columns, read) in _READERS.items():
        bad = []
        for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall():
            try:
                read(row)
                if not all(_has_type(value, column) for value, column in zip(row, columns, strict=True)):
                    bad.append(row)
            except (ValueError, TypeError, KeyError, IndexError, AttributeError):
                bad.append(row)
        key = ("job_id", "task_index") if table == "tasks" else columns[:1]
        where = " AND ".join(f"{column} IS ?" for column in key)
        for row in bad:
            connection.execute(f"DELETE FROM {table} WHERE {where}", row[: len(key)])
        if bad:
            notes.append(f"{len(bad)} records of the table {table} are left out: they are damaged")
    return notes


def _has_type(value: object, column: str) -> bool:
    if column.endswith("_ms") or column in ("attempt", "failures", "preemptions", "exit_code", "exit_signal"):
        return isinstance(value, int)
    return True


def _jobs(connection: sqlite3.Connection) -> tuple[dict[JobId, Job], list[str]]:
    """The jobs that can be read, and the names of the others."""
    columns = ", ".join(f"jobs.{name}" for name in JOB_COLUMNS)
    query = (
        f"SELECT {columns}, job_specs.spec, job_env_vars.env_vars FROM jobs LEFT JOIN job_specs USING (job_id) "
        "LEFT JOIN job_env_vars USING (job_id)"
    )
    jobs: dict[JobId, Job] = {}
    left_out: list[str] = []
    for row in connection.execute(query).fetchall():
        try:
            job = job_of(row, spec_of(JobId(row[0]), row[-2], row[-1]))
            if not all(isinstance(value, int) for value in (*row[1:6], *row[7:9], row[12])) or row[0].count("/") < 2:
                raise ValueError
            jobs[job.job_id] = job
        except (ValueError, TypeError, KeyError, IndexError, AttributeError):
            left_out.append(str(row[0]))
    return jobs, left_out


def _drop_orphans(connection: sqlite3.Connection) -> None:
    for table in ("job_specs", "job_env_vars", "tasks", "stopping", "lost_attempts", "attempt_usage"):
        connection.execute(f"DELETE FROM {table} WHERE job_id NOT IN (SELECT job_id FROM jobs)")


def _end_incomplete(
    connection: sqlite3.Connection, jobs: dict[JobId, Job], damaged: frozenset[str], now_ms: int
) -> list[str]:
    columns = ", ".join(TASK_COLUMNS)
    workers = {row[0] for row in connection.execute("SELECT worker_id FROM workers")}
    with_variables = {row[0] for row in connection.execute("SELECT job_id FROM job_env_vars")}
    ended: set[JobId] = set()
    for job_id in sorted(jobs, key=lambda name: name.count("/")):
        job = jobs[job_id]
        if job.state.is_terminal:
            continue
        rows = connection.execute(f"SELECT {columns} FROM tasks WHERE job_id = ?", (job_id,)).fetchall()
        tasks = {task.index: task for task in map(task_of, rows)}
        parent = parent_of(job_id)
        whole = (
            set(tasks) == set(range(job.spec.replicas))
            and not ("job_env_vars" in damaged and job_id not in with_variables)
            and all(task.worker_id in workers for task in tasks.values() if task.state.is_live)
            and (parent is None or (parent in jobs and not jobs[parent].state.is_terminal and parent not in ended))
        )
        if not whole:
            ended.add(job_id)
            _end(connection, job, tasks, now_ms)
    return sorted(ended)


def _drop_endpoints(connection: sqlite3.Connection) -> None:
    """Remove the endpoints of jobs that do not live (any more)."""
    connection.execute(  # not LIKE, to which the `_` of a name is any character
        "DELETE FROM endpoints WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.state < ? AND "
        "substr(endpoints.attempt_id, 1, length(jobs.job_id) + 1) = jobs.job_id || '/')",
        (int(JobState.SUCCEEDED),),
    )


def _end(connection: sqlite3.Connection, job: Job, tasks: dict[int, Task], now_ms: int, why: str = ENDED) -> None:
    workers = {row[0] for row in connection.execute("SELECT worker_id FROM workers")}
    written: list[Task] = []
    stopping: list[Row] = []
    for index in range(job.spec.replicas):
        task = tasks.get(index) or Task(task_id(job.job_id, index), job.job_id, index, attempt=job.first_attempt - 1)
        if not task.state.is_terminal:
            if task.state.is_live and task.worker_id in workers:
                # It may run there still: nothing takes its place before it has ended.
                there = Stopping(job.job_id, WorkerId(task.worker_id or ""), job.spec.resources, found=True)
                stopping.append(stopping_row(attempt_id(task.task_id, task.attempt), there))
            task = replace(task, state=TaskState.KILLED, error=why, finished_at_ms=now_ms)
        written.append(task)
    counts = list(NO_TASKS)
    for task in written:
        counts[int(task.state)] += 1
    execute(connection, Delete("tasks", [job.job_id]))
    execute(connection, upsert("tasks", [task_row(task) for task in written]))
    if stopping:
        execute(connection, upsert("stopping", stopping))
    job = replace(job, state=JobState.KILLED, error=why, finished_at_ms=now_ms, task_counts=tuple(counts))
    execute(connection, upsert("jobs", [job_row(job)]))


def _names(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
