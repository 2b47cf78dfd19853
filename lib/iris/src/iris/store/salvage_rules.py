"""What of a salvaged database may stay: whole records, whole jobs; live jobs that are not whole are ended."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from iris.domain.entities import NO_TASKS, Job, Task
from iris.domain.ids import JobId, parent_of, task_id
from iris.domain.states import JobState, TaskState
from iris.store.ops import Delete, execute, upsert
from iris.store.rows import (
    BUDGET_COLUMNS,
    ENDPOINT_COLUMNS,
    JOB_COLUMNS,
    LOST_COLUMNS,
    STOPPING_COLUMNS,
    TASK_COLUMNS,
    WORKER_COLUMNS,
    Row,
    budget_of,
    endpoint_of,
    job_of,
    job_row,
    lost_of,
    spec_of,
    stopping_of,
    task_of,
    task_row,
    worker_of,
)

_SHOWN: Final = 5
ENDED: Final = "the controller's database was damaged, and not all of this job could be read"
_READERS: Final[dict[str, tuple[tuple[str, ...], Callable[[Row], object]]]] = {
    "tasks": (TASK_COLUMNS, task_of),
    "workers": (WORKER_COLUMNS, worker_of),
    "budgets": (BUDGET_COLUMNS, budget_of),
    "endpoints": (ENDPOINT_COLUMNS, endpoint_of),
    "stopping": (STOPPING_COLUMNS, stopping_of),
    "lost_attempts": (LOST_COLUMNS, lost_of),
}


def mend(connection: sqlite3.Connection, damaged: frozenset[str], now_ms: int) -> tuple[str, ...]:
    """Remove records that are not whole, and end live jobs of which something is missing; returns what to tell.

    Args:
        damaged: Tables of which more was there than could be read.
    """
    notes = [f"more was in the table {name} than could be read" for name in sorted(damaged)]
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
    connection.execute("COMMIT")
    return tuple(notes)


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
    for table in ("job_specs", "job_env_vars", "tasks", "stopping", "lost_attempts"):
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
    connection.execute(
        "DELETE FROM endpoints WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.state < ? AND "
        "endpoints.attempt_id LIKE jobs.job_id || '/%')",
        (int(JobState.SUCCEEDED),),
    )
    return sorted(ended)


def _end(connection: sqlite3.Connection, job: Job, tasks: dict[int, Task], now_ms: int) -> None:
    written = []
    for index in range(job.spec.replicas):
        task = tasks.get(index) or Task(task_id(job.job_id, index), job.job_id, index, attempt=job.first_attempt - 1)
        if not task.state.is_terminal:
            task = replace(task, state=TaskState.KILLED, error=ENDED, finished_at_ms=now_ms)
        written.append(task)
    counts = list(NO_TASKS)
    for task in written:
        counts[int(task.state)] += 1
    execute(connection, Delete("tasks", [job.job_id]))
    execute(connection, upsert("tasks", [task_row(task) for task in written]))
    job = replace(job, state=JobState.KILLED, error=ENDED, finished_at_ms=now_ms, task_counts=tuple(counts))
    execute(connection, upsert("jobs", [job_row(job)]))


def _names(ids: list[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
