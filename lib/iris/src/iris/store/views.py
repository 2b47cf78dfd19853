"""The tables that operators query. Names and columns are public (docs/query.md) and do not depend on the internal
tables.

They are temporary views of the querying connection that shadow tables with the same names.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from iris.domain.states import JobState, PriorityBand, TaskState
from iris.domain.usage import Use
from iris.store.event_rows import BUDGET_SET, REQUESTED, UPDATED, WORDS


def _word(column: str, kind: type[IntEnum]) -> str:
    cases = " ".join(f"WHEN {int(member)} THEN '{member.name.lower()}'" for member in kind)
    return f"CASE {column} {cases} END"


_USER: Final = "substr(job_id, 2, instr(substr(job_id, 2), '/') - 1)"
# What is left of the last '/'; nothing for /user/name.
_HEAD: Final = "rtrim(rtrim(job_id, replace(job_id, '/', '')), '/')"
_PARENT: Final = f"CASE WHEN instr(substr({_HEAD}, 2), '/') THEN {_HEAD} END"


def _spec(path: str) -> str:
    return f"json_extract(spec, '$.{path}')"


_STATES: Final = " UNION ALL ".join(
    f"SELECT '{of}' AS of, {int(member)} AS number, '{member.name.lower()}' AS word"
    for of, kind in (("job", JobState), ("task", TaskState), ("band", PriorityBand))
    for member in kind
)

_KINDS: Final = " ".join(f"WHEN {number} THEN '{word}'" for number, word in WORDS.items())

_LEDGER: Final = " UNION ALL ".join(
    f"""SELECT start_ms, nullif(user, '') AS user, nullif(job_id, '') AS job_id,
        CASE WHEN job_id != '' THEN coalesce({_PARENT}, job_id) END AS root_id, worker_group, '{use}' AS class,
        {use}_core_ms / 1000.0 AS core_seconds, {use}_chip_ms / 1000.0 AS chip_seconds,
        nullif({use}_core_ms * core_hour_price + {use}_chip_ms * chip_hour_price, 0) / 3600000.0 AS cost
        FROM main.ledger WHERE {use}_core_ms OR {use}_chip_ms"""
    for use in (member.name.lower() for member in Use)
)

VIEWS: Final = {
    "jobs": f"""
        SELECT job_id, {_USER} AS user, {_PARENT} AS parent_id,
            state, {_word("state", JobState)} AS state_word,
            {_spec("band")} AS band, {_word(_spec("band"), PriorityBand)} AS band_word,
            {_spec("replicas")} AS replicas,
            json_extract(task_counts, '$[{int(TaskState.PENDING)}]') AS pending_tasks,
            json_extract(task_counts, '$[{int(TaskState.RUNNING)}]') AS running_tasks,
            json_extract(task_counts, '$[{int(TaskState.SUCCEEDED)}]') AS succeeded_tasks,
            json_extract(task_counts, '$[{int(TaskState.FAILED)}]') AS failed_tasks,
            coalesce({_spec("resources.cpu_millis")}, 0) AS cpu_millis,
            coalesce({_spec("resources.memory_bytes")}, 0) AS memory_bytes,
            coalesce({_spec("resources.disk_bytes")}, 0) AS disk_bytes,
            {_spec("resources.device[0]")} AS device_kind, {_spec("resources.device[1]")} AS device_variant,
            {_spec("resources.device[2]")} AS device_count,
            coalesce({_spec("entrypoint.display_name")}, {_spec("entrypoint.argv")}) AS command,
            {_spec("bundle_digest")} AS bundle_digest, {_spec("description")} AS description,
            coalesce({_spec("max_retries_failure")}, 0) AS max_retries_failure,
            {_spec("max_retries_preemption")} AS max_retries_preemption,
            error, exit_code, exit_signal, deciding_task_id, submitted_at_ms, started_at_ms, finished_at_ms
        FROM main.jobs JOIN main.job_specs USING (job_id)""",
    "tasks": f"""
        SELECT job_id || '/' || task_index AS task_id, job_id, {_USER} AS user, task_index,
            state, {_word("state", TaskState)} AS state_word, attempt, worker_id, failures, preemptions,
            exit_code, exit_signal, error, started_at_ms, finished_at_ms, causes
        FROM main.tasks""",
    "attempt_usage": f"""
        SELECT job_id || '/' || task_index || ':' || attempt AS attempt_id, job_id, {_USER} AS user, task_index,
            attempt, worker_id, cpu_ms / 1000.0 AS cpu_seconds, memory_peak_bytes, disk_peak_bytes, processes_peak,
            memory_mean_bytes, began_at_ms, at_ms
        FROM main.attempt_usage""",
    "workers": """
        SELECT worker_id, instance_id,
            coalesce(json_extract(capacity, '$.cpu_millis'), 0) AS cpu_millis,
            coalesce(json_extract(capacity, '$.memory_bytes'), 0) AS memory_bytes,
            coalesce(json_extract(capacity, '$.disk_bytes'), 0) AS disk_bytes,
            json_extract(capacity, '$.device[0]') AS device_kind,
            json_extract(capacity, '$.device[1]') AS device_variant,
            json_extract(capacity, '$.device[2]') AS device_count,
            attributes, last_seen_at_ms, cordon_reason, cordoned_at_ms, strikes
        FROM main.workers""",
    "budgets": f"""
        SELECT user, max_weight, max_band, {_word("max_band", PriorityBand)} AS max_band_word FROM main.budgets""",
    "endpoints": """
        SELECT name, rtrim(rtrim(name, replace(name, '/', '')), '/') AS namespace, attempt_id, address, metadata,
            registered_at_ms
        FROM main.endpoints""",
    "states": _STATES,
    "events": f"""
        SELECT sequence, at_ms, CASE kind {_KINDS} END AS kind, subject,
            CASE WHEN substr(subject, 1, 1) = '/' THEN substr(subject, 2, instr(substr(subject, 2) || '/', '/') - 1) END
                AS user,
            worker_id, caller, address, detail
        FROM main.events""",
    "ledger": _LEDGER,
    "audit": f"""
        SELECT sequence, at_ms, caller, address,
            CASE kind WHEN {REQUESTED} THEN json_extract(detail, '$.action') ELSE CASE kind {_KINDS} END END AS action,
            coalesce(subject, worker_id) AS subject,
            coalesce(json_extract(detail, '$.reason'), CASE WHEN kind IN ({BUDGET_SET}, {UPDATED}) THEN detail END)
                AS reason
        FROM main.events WHERE caller IS NOT NULL""",
}

HIDDEN: Final = {
    "jobs": frozenset({"command", "bundle_digest", "description", "error", "deciding_task_id"}),
    "tasks": frozenset({"error", "causes"}),
    "events": frozenset({"caller", "address"}),
}
"""Columns with a job's command and output, which are NULL in other users' rows unless the reader is an admin."""

OWN_ROWS: Final = {
    "budgets": "user = {user}",
    "ledger": "user = {user}",
    "events": "user = {user} OR user IS NULL AND kind != 'requested'",
    "audit": "caller = {user}",
    "endpoints": "substr(name, 1, length({user}) + 2) = '/' || {user} || '/'",
}
"""Views that show a reader only their own rows, unless they are an admin."""


def view_for(reader: str, name: str, inner: str, columns: Sequence[str]) -> str:
    """Return the SELECT that shows a reader the permitted part of the whole view `inner`.

    Args:
        reader: A user.
        name: The view's public name.
        inner: The name of the whole view.
        columns: Its columns.
    """
    user = "'" + reader.replace("'", "''") + "'"
    hidden = HIDDEN.get(name, frozenset())
    mine = f"CASE WHEN user = {user} THEN"
    shown = [f"{mine} {column} END AS {column}" if column in hidden else column for column in columns]
    rows = f" WHERE {OWN_ROWS[name].format(user=user)}" if name in OWN_ROWS else ""
    return f"SELECT {', '.join(shown)} FROM {inner}{rows}"


READABLE: Final = frozenset({*VIEWS, "job_specs"})
"""The views and tables that a query may read. The other tables contain the environment variables of jobs:
`job_env_vars`, and `journal`, which contains every written row.
"""
