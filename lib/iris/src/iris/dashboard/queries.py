"""The SQL queries of the pages (docs/query.md describes the tables). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from iris.domain.states import JobState
from rigging.errors import InvalidRequest

_JOB_COLUMNS: Final = (
    "job_id, user, parent_id, state_word, band_word, replicas, pending_tasks, running_tasks, succeeded_tasks, "
    "failed_tasks, submitted_at_ms, started_at_ms, finished_at_ms, substr(error, 1, 300) AS error, "
    "substr(description, 1, 200) AS description"
)
_LIVE: Final = "('pending', 'building', 'running')"
_FAILED: Final = "('failed', 'worker_failed', 'unschedulable')"
_FAILED_BELOW: Final = "failed child jobs"
STATES: Final = ("live", *(state.word for state in JobState), _FAILED_BELOW)
"""States for the job filter; `live` selects jobs that have not ended, the last one jobs with failed descendants."""

SAVED: Final = (
    ("Jobs by state", "SELECT state_word, count(*) AS jobs FROM jobs GROUP BY 1 ORDER BY 2 DESC"),
    (
        "Failed jobs, newest first",
        "SELECT job_id, error, datetime(finished_at_ms / 1000, 'unixepoch') AS finished FROM jobs\n"
        "WHERE state_word = 'failed' ORDER BY finished_at_ms DESC LIMIT 50",
    ),
    (
        "Who uses the cluster",
        "SELECT user, count(*) AS jobs, sum(running_tasks) AS running, sum(pending_tasks) AS pending\n"
        "FROM jobs GROUP BY user ORDER BY running DESC",
    ),
    (
        "Attempts by memory",
        "SELECT attempt_id, worker_id, cpu_seconds, memory_peak_bytes FROM attempt_usage\n"
        "ORDER BY memory_peak_bytes DESC LIMIT 50",
    ),
    (
        "Workers that lose tasks",
        "SELECT worker_id, count(*) AS lost FROM tasks WHERE state_word = 'worker_failed' GROUP BY 1 ORDER BY 2 DESC",
    ),
    ("Slowest tasks", "SELECT task_id, (finished_at_ms - started_at_ms) / 1000.0 AS seconds FROM tasks\n"
     "WHERE finished_at_ms > 0 ORDER BY 2 DESC LIMIT 50"),
)  # fmt: skip
"""Common queries, each with a title and its SQL."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A selection of jobs.

    Attributes:
        text: Text in the job's id or description; "" for all root jobs.
        state: One of STATES; "" for all.
        user: The user; "" for all.
        parent: Only children of this job; its descendants, if text or state are given. "" for all.
    """

    text: str = ""
    state: str = ""
    user: str = ""
    parent: str = ""

    def __post_init__(self) -> None:
        if self.state and self.state not in STATES:
            raise InvalidRequest(f"state {self.state[:40]!r} is unknown; allowed are {', '.join(STATES)}")

    @property
    def where(self) -> str:
        """Return the SQL condition."""
        found = []
        if self.text:
            text = f"lower({quoted(self.text)})"
            found.append(f"(instr(lower(job_id), {text}) OR instr(lower(description), {text}))")
        if self.state:
            found.append(_in_state(self.state))
        if self.user:
            found.append(f"user = {quoted(self.user)}")
        if self.parent:
            found.append(_below(quoted(self.parent)))
        if not (self.text or self.state):
            found.append(_is_child(quoted(self.parent)) if self.parent else "parent_id IS NULL")
        return " AND ".join(found)


def _in_state(state: str) -> str:
    if state == _FAILED_BELOW:
        below = _below("jobs.job_id", "below.job_id")
        return f"EXISTS (SELECT 1 FROM jobs AS below WHERE {below} AND below.state_word IN {_FAILED})"
    return f"state_word IN {_LIVE}" if state == "live" else f"state_word = {quoted(state)}"


def _below(job_id: str, column: str = "job_id") -> str:
    """Return the condition for descendants of a job, a range of the primary key: '0' follows '/'."""
    return f"{column} > {job_id} || '/' AND {column} < {job_id} || '0'"


def _is_child(job_id: str, column: str = "job_id") -> str:
    """Return the condition for children among a job's descendants; `parent_id` costs more."""
    return f"instr(substr({column}, length({job_id}) + 2), '/') = 0"


def quoted(text: str) -> str:
    """Return a text as an SQL literal. Raises InvalidRequest for a NUL character, which would end the SQL text."""
    if "\0" in text:
        raise InvalidRequest("the search text must not contain a NUL character")
    return "'" + text.replace("'", "''") + "'"


def count_jobs(chosen: JobFilter) -> str:
    """Return the query for the number of jobs, as `total`."""
    return f"SELECT count(*) AS total FROM jobs WHERE {chosen.where}"


def list_jobs(chosen: JobFilter, offset: int, limit: int) -> str:
    """Return the query for a page of jobs, newest first; below a parent, failed ones first.

    Args:
        chosen: The selection.
        offset: Number of jobs to skip.
        limit: Maximum number of jobs.
    """
    first = f"state_word IN {_FAILED} DESC, " if chosen.parent else ""
    return (
        f"SELECT {_JOB_COLUMNS} FROM jobs WHERE {chosen.where} ORDER BY {first}submitted_at_ms DESC, job_id "
        f"LIMIT {int(limit)} OFFSET {int(offset)}"
    )


def descendants_of(job_ids: list[str]) -> str:
    """Return the query for the number of these jobs' descendants in each state, as `jobs`, and of the children among
    them, as `children`; failed ones first.
    """
    names = ", ".join(f"({quoted(name)})" for name in job_ids)
    return (
        f"WITH asked(job_id) AS (VALUES {names}) "
        "SELECT asked.job_id, state_word, count(*) AS jobs, "
        f"sum({_is_child('asked.job_id', 'below.job_id')}) AS children "
        f"FROM asked JOIN jobs AS below ON {_below('asked.job_id', 'below.job_id')} "
        f"GROUP BY 1, 2 ORDER BY state_word IN {_FAILED} DESC, state_word"
    )


def count_tasks(job_id: str, state: str) -> str:
    """Return the query for the number of tasks of a job, as `total`.

    Args:
        job_id: The job.
        state: Only tasks in this state; "" for all.
    """
    return f"SELECT count(*) AS total FROM tasks WHERE {_tasks_of(job_id, state)}"


def list_tasks(job_id: str, state: str, offset: int, limit: int) -> str:
    """Return the query for a page of a job's tasks, with the total usage of their attempts. Arguments as in
    `count_tasks` and `list_jobs`.
    """
    used = (
        f"SELECT task_index, sum(cpu_seconds) AS cpu_seconds, max(memory_peak_bytes) AS memory_peak_bytes "
        f"FROM attempt_usage WHERE job_id = {quoted(job_id)} GROUP BY task_index"
    )
    return (
        "SELECT t.task_id, t.task_index, t.state_word, t.attempt, t.worker_id, t.failures, t.preemptions, t.exit_code, "
        "t.exit_signal, substr(t.error, 1, 300) AS error, t.started_at_ms, t.finished_at_ms, t.causes, t.state, "
        "used.cpu_seconds, used.memory_peak_bytes "
        f"FROM (SELECT * FROM tasks WHERE {_tasks_of(job_id, state)} "
        f"ORDER BY task_index LIMIT {int(limit)} OFFSET {int(offset)}) AS t "
        f"LEFT JOIN ({used}) AS used USING (task_index)"
    )


def steps_below(job_id: str) -> str:
    """Return the query for the number of a job's children that run steps of an experiment, as `steps`."""
    below = quoted(job_id)
    return (
        f"SELECT count(*) AS steps FROM jobs WHERE {_below(below)} AND {_is_child(below)} AND description LIKE 'step %'"
    )


def used_by(job_id: str) -> str:
    """Return the query for what all attempts of a job used, and the seconds that they ran."""
    return (
        "SELECT sum(cpu_seconds) AS cpu_seconds, max(memory_peak_bytes) AS memory_peak_bytes, "
        "sum(max(at_ms - began_at_ms, 0)) FILTER (WHERE began_at_ms > 0) / 1000.0 AS seconds "
        f"FROM attempt_usage WHERE job_id = {quoted(job_id)}"
    )


def attempt_times(job_id: str, indexes: list[int]) -> str:
    """Return the query for the times of all attempts of some tasks."""
    tasks = ", ".join(str(int(index)) for index in indexes)
    return (
        "SELECT attempt_id, task_index, began_at_ms, at_ms FROM attempt_usage "
        f"WHERE job_id = {quoted(job_id)} AND task_index IN ({tasks}) ORDER BY task_index, attempt"
    )


def task_states(job_id: str) -> str:
    """Return the query for the number of a job's tasks in each state."""
    return f"SELECT state_word, count(*) AS tasks FROM tasks WHERE job_id = {quoted(job_id)} GROUP BY 1"


def users() -> str:
    """Return the query for users with their jobs and usage on the cluster."""
    return (
        f"SELECT user, count(*) AS jobs, sum(state_word IN {_LIVE}) AS live, sum(running_tasks) AS running, "
        "sum(pending_tasks) AS pending, max(submitted_at_ms) AS last_at_ms FROM jobs "
        "GROUP BY user ORDER BY live DESC, user"
    )


def used_over_time(begin_ms: int, step_ms: int) -> str:
    """Return the query for core- and chip-seconds by class in steps of time, from the ledger."""
    return (
        f"SELECT start_ms / {int(step_ms)} * {int(step_ms)} AS start_ms, class, sum(core_seconds) AS core_seconds, "
        f"sum(chip_seconds) AS chip_seconds FROM ledger WHERE start_ms >= {int(begin_ms)} GROUP BY 1, 2"
    )


def used_by_users(begin_ms: int) -> str:
    """Return the query for core- and chip-seconds, their cost, and core-seconds lost, by user, from the ledger."""
    return (
        "SELECT user, sum(core_seconds) AS core_seconds, sum(chip_seconds) AS chip_seconds, sum(cost) AS cost, "
        "sum(core_seconds) FILTER (WHERE class = 'lost') AS lost_seconds "
        f"FROM ledger WHERE user IS NOT NULL AND start_ms >= {int(begin_ms)} GROUP BY user ORDER BY 2 DESC LIMIT 100"
    )


def waits_since(begin_ms: int) -> str:
    """Return the query for the milliseconds that jobs waited which have started since a time, sorted."""
    return (
        "SELECT started_at_ms - submitted_at_ms AS wait_ms FROM jobs "
        f"WHERE started_at_ms >= {int(begin_ms)} ORDER BY 1 LIMIT 10000"
    )


def failed_since(begin_ms: int, limit: int) -> str:
    """Return the query for the root jobs that failed last since a time, with the number of all of them as `total`.

    Args:
        begin_ms: Unix ms.
        limit: Maximum number of jobs.
    """
    return (
        "SELECT job_id, state_word, replicas, deciding_task_id, substr(error, 1, 300) AS error, finished_at_ms, "
        f"count(*) OVER () AS total FROM jobs WHERE state_word IN {_FAILED} AND parent_id IS NULL "
        f"AND finished_at_ms >= {int(begin_ms)} ORDER BY finished_at_ms DESC LIMIT {int(limit)}"
    )


def endpoints() -> str:
    """Return the query for the endpoints of live attempts."""
    columns = "name, namespace, attempt_id, address, metadata, registered_at_ms"
    return f"SELECT {columns} FROM endpoints ORDER BY name LIMIT 1000"


def endpoints_named(names: list[str]) -> str:
    """Return the query for the endpoints with these names."""
    columns = "name, attempt_id, address, metadata, registered_at_ms"
    return f"SELECT {columns} FROM endpoints WHERE name IN ({', '.join(map(quoted, names))}) LIMIT 1000"


def tasks_on(worker_id: str) -> str:
    """Return the query for the live tasks on a worker."""
    return (
        "SELECT task_id, job_id, state_word, attempt, started_at_ms FROM tasks "
        f"WHERE worker_id = {quoted(worker_id)} AND state_word IN ('assigned', 'building', 'running') "
        "ORDER BY 1 LIMIT 500"
    )


def _tasks_of(job_id: str, state: str) -> str:
    return f"job_id = {quoted(job_id)}" + (f" AND state_word = {quoted(state)}" if state else "")
