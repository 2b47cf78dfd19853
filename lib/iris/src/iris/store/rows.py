"""Converts domain records to rows and their JSON, and back."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

from iris.domain.constraints import STORED_NUMBERS, Constraint, stored_operator
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import NO_TASKS, Job, LostAttempt, Stopping, Task, UserBudget, Worker
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, attempt_id, parse_attempt_id, parse_task_id
from iris.domain.job_spec import (
    PLAIN_FIELDS,
    CallableEntrypoint,
    CommandEntrypoint,
    Entrypoint,
    JobSpec,
    is_alike,
    renamed,
)
from iris.domain.resources import Device, Resources
from iris.domain.runtime import DEFAULT_RUNTIME, runtime_from_json, runtime_to_json
from iris.domain.states import JobState, PreemptionReason, PriorityBand, TaskState
from iris.domain.usage import USAGE_FIELDS, AttemptUse, usage_from

Row = tuple[Any, ...]  # what sqlite3 takes and gives

JOB_COLUMNS: Final = (
    "job_id", "sequence", "state", "submitted_at_ms", "started_at_ms", "finished_at_ms", "error", "exit_code",
    "exit_signal", "deciding_task_id", "idempotency_key", "task_counts", "first_attempt",
    "hold", "waits", "ready_at_ms",
)  # fmt: skip
TASK_COLUMNS: Final = (
    "job_id", "task_index", "state", "attempt", "worker_id", "failures", "preemptions", "exit_code", "exit_signal",
    "error", "started_at_ms", "finished_at_ms", "causes", "failure_times", "burnt", "retry_at_ms",
)  # fmt: skip
WORKER_COLUMNS: Final = (
    "worker_id", "instance_id", "capacity", "attributes", "last_seen_at_ms", "cordon_reason", "strikes",
    "cordoned_by", "cordoned_at_ms",
)  # fmt: skip
BUDGET_COLUMNS: Final = ("user", "max_weight", "max_band")
USAGE_COLUMNS: Final = ("user", "use", "at_ms")
STOPPING_COLUMNS: Final = ("attempt_id", "job_id", "worker_id", "resources", "found", "notice")
LOST_COLUMNS: Final = ("attempt_id", "job_id", "worker_id", "resources", "may_return", "is_charged", "endpoints")
ATTEMPT_USAGE_COLUMNS: Final = ("job_id", "task_index", "attempt", "worker_id", *USAGE_FIELDS)
SERIES_COLUMNS: Final = ("job_id", "task_index", "series")
ENDPOINT_COLUMNS: Final = ("endpoint_id", "name", "attempt_id", "address", "metadata", "registered_at_ms")

_TASK_STATES: Final = {int(state): state for state in TaskState}


def job_row(job: Job) -> Row:
    """Return the row of a job."""
    return (
        job.job_id, job.sequence, int(job.state), job.submitted_at_ms, job.started_at_ms, job.finished_at_ms,
        job.error, job.exit_code, job.exit_signal, job.deciding_task_id, job.idempotency_key,
        _counts_text(job.task_counts), job.first_attempt, job.hold, job.waits,
        job.ready_at_ms,
    )  # fmt: skip


def job_of(row: Row, spec: JobSpec) -> Job:
    """Return the job of a row, with its spec."""
    return Job(
        spec=spec,
        sequence=row[1],
        state=JobState(row[2]),
        submitted_at_ms=row[3],
        started_at_ms=row[4],
        finished_at_ms=row[5],
        error=row[6],
        exit_code=row[7],
        exit_signal=row[8],
        deciding_task_id=None if row[9] is None else TaskId(row[9]),
        idempotency_key=row[10],
        task_counts=_counts_of(row[11]),
        first_attempt=row[12],
        hold=row[13],
        waits=row[14],
        ready_at_ms=row[15],
    )


@lru_cache(maxsize=4096)
def _counts_text(counts: tuple[int, ...]) -> str:
    return _dump(counts)


@lru_cache(maxsize=4096)  # few of them differ, and equal ones need not be in memory twice
def _counts_of(text: str) -> tuple[int, ...]:
    counts = tuple(json.loads(text))
    # A release that adds a task state makes the tuple longer; older rows are padded.
    return counts + NO_TASKS[len(counts) :]


def task_row(task: Task) -> Row:
    """Return the row of a task."""
    return (
        task.job_id, task.index, int(task.state), task.attempt, task.worker_id, task.failures, task.preemptions,
        task.exit_code, task.exit_signal, task.error, task.started_at_ms, task.finished_at_ms,
        _dump(task.causes) if task.causes else "[]", _dump(task.failure_times) if task.failure_times else "[]",
        task.burnt, task.retry_at_ms,
    )  # fmt: skip


def task_of(row: Row) -> Task:
    # Positional, and without the checks of `task_id`: a restart reads them by the hundred thousand.
    """Return the task of a row."""
    return Task(
        TaskId(f"{row[0]}/{row[1]}"),
        row[0],
        row[1],
        _TASK_STATES[row[2]],
        row[3],
        row[4],
        row[5],
        row[6],
        row[7],
        row[8],
        row[9],
        row[10],
        row[11],
        () if row[12] == "[]" else tuple(json.loads(row[12])),
        () if row[13] == "[]" else tuple(json.loads(row[13])),
        row[14],
        row[15],
    )


def worker_row(worker: Worker) -> Row:
    """Return the row of a worker."""
    return (
        worker.worker_id,
        worker.instance_id,
        _dump(resources_to_json(worker.capacity)),
        _dump(dict(worker.attributes)),
        worker.last_seen_at_ms,
        worker.cordon_reason,
        worker.strikes,
        worker.cordoned_by,
        worker.cordoned_at_ms,
    )


def worker_of(row: Row) -> Worker:
    """Return the worker of a row, disconnected, because no session outlives the controller."""
    return Worker(
        worker_id=WorkerId(row[0]),
        instance_id=row[1],
        capacity=resources_of(json.loads(row[2])),
        attributes=json.loads(row[3]),
        connected=False,
        last_seen_at_ms=row[4],
        cordon_reason=row[5],
        strikes=row[6],
        cordoned_by=row[7],
        cordoned_at_ms=row[8],
    )


def endpoint_row(endpoint: RegisteredEndpoint) -> Row:
    """Return the row of an endpoint."""
    return (
        endpoint.endpoint_id,
        endpoint.name,
        endpoint.attempt_id,
        endpoint.address,
        _dump(dict(endpoint.metadata)),
        endpoint.registered_at_ms,
    )


def endpoint_of(row: Row) -> RegisteredEndpoint:
    """Return the endpoint of a row."""
    return RegisteredEndpoint(row[1], row[2], row[3], json.loads(row[4]), row[5])


def budget_row(budget: UserBudget) -> Row:
    """Return the row of a user's budget."""
    return budget.user, budget.max_weight, int(budget.max_band)


def budget_of(row: Row) -> UserBudget:
    """Return the budget of a row."""
    return UserBudget(row[0], row[1], PriorityBand(row[2]))


def stopping_row(name: AttemptId, stopping: Stopping) -> Row:
    """Return the row of a stopping attempt."""
    resources = _dump(resources_to_json(stopping.resources))
    notice = "" if stopping.notice is None else "{} {}".format(*stopping.notice)
    return name, stopping.job_id, stopping.worker_id, resources, int(stopping.found), notice


def stopping_of(row: Row) -> tuple[AttemptId, Stopping]:
    """Return the stopping attempt of a row, with its id."""
    resources = resources_of(json.loads(row[3]))
    reason, _, grace_ms = row[5].partition(" ")
    notice = (PreemptionReason(reason), int(grace_ms)) if reason else None
    return AttemptId(row[0]), Stopping(JobId(row[1]), WorkerId(row[2]), resources, bool(row[4]), notice)


def lost_row(name: AttemptId, lost: LostAttempt) -> Row:
    """Return the row of a lost attempt."""
    return (
        name,
        lost.job_id,
        lost.worker_id,
        _dump(resources_to_json(lost.resources)),
        int(lost.may_return),
        int(lost.is_charged),
        _dump([endpoint_row(endpoint) for endpoint in lost.endpoints]),
    )


def lost_of(row: Row) -> tuple[AttemptId, LostAttempt]:
    """Return the lost attempt of a row, with its id."""
    return AttemptId(row[0]), LostAttempt(
        JobId(row[1]),
        WorkerId(row[2]),
        resources_of(json.loads(row[3])),
        bool(row[4]),
        bool(row[5]),
        tuple(map(endpoint_of, json.loads(row[6]))),
    )


def attempt_usage_row(name: AttemptId, use: AttemptUse) -> Row:
    """Return the row of an attempt's resource use."""
    task, number = parse_attempt_id(name)
    job_id, index = parse_task_id(task)
    return job_id, index, number, use.worker_id, *use.usage.numbers()


def attempt_usage_of(row: Row) -> tuple[AttemptId, AttemptUse]:
    """Return an attempt's id and resource use from a row."""
    name = attempt_id(TaskId(f"{row[0]}/{row[1]}"), row[2])
    return name, AttemptUse(WorkerId(row[3]), usage_from(row[4:]))


def spec_to_json(spec: JobSpec) -> str:
    """Return the spec as JSON, without default values and without env_vars, which are stored separately."""
    given = ((name, getattr(spec, name)) for name in _SPEC_FIELDS)
    return _dump(
        {
            name: _TO_JSON[name](value) if name in _TO_JSON else value
            for name, value in given
            if name in _ALWAYS or value != _DEFAULTS[name]
        }
    )


def _entrypoint_to_json(entrypoint: Entrypoint) -> Mapping[str, object]:
    if isinstance(entrypoint, CommandEntrypoint):
        return {"argv": entrypoint.argv}
    return {"payload_digest": entrypoint.payload_digest, "display_name": entrypoint.display_name}


def _constraints_to_json(constraints: Sequence[Constraint]) -> Sequence[object]:
    return [[c.key, STORED_NUMBERS[c.op], c.values, c.soft] for c in constraints]


class SpecWriter:
    """Serialises specs. Reuses the text for a spec equal to the last one."""

    def __init__(self) -> None:
        self._last: tuple[JobSpec, str, str] | None = None

    def write(self, spec: JobSpec) -> tuple[str, str]:
        """Return the spec, and its env_vars, which are stored separately ("" for none)."""
        last = self._last
        if last is None or not is_alike(spec, last[0]):
            last = self._last = (spec, spec_to_json(spec), env_vars_to_json(spec) if spec.env_vars else "")
        return last[1], last[2]


def env_vars_to_json(spec: JobSpec) -> str:
    """Return a job's environment variables as JSON text."""
    return _dump(dict(spec.env_vars))


def spec_of(job_id: JobId, text: str, env_vars: str | None = None) -> JobSpec:
    """Return the spec from its stored texts.

    Args:
        job_id: The job.
        text: The spec in JSON.
        env_vars: The job's variables in JSON; None for none.
    """
    written = json.loads(text)
    return JobSpec(
        job_id=job_id,
        entrypoint=_entrypoint_of(written["entrypoint"]),
        resources=resources_of(written.get("resources", {})),
        extras=tuple(written.get("extras", ())),
        pip_packages=tuple(written.get("pip_packages", ())),
        env_vars=json.loads(env_vars) if env_vars else {},
        constraints=tuple(
            Constraint(key, stored_operator(op, f"constraint {key!r}: operator"), tuple(values), soft)
            for key, op, values, soft in written.get("constraints", ())
        ),
        ports=tuple(written.get("ports", ())),
        band=PriorityBand(written["band"]),
        runtime=runtime_from_json(written["runtime"]) if "runtime" in written else DEFAULT_RUNTIME,
        **{name: written[name] for name in PLAIN_FIELDS if name in _ALWAYS or name in written},
    )


class SpecReader:
    """Reads many specs. Equal specs share their parts, because most jobs are alike."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str | None], JobSpec] = {}

    def read(self, job_id: JobId, text: str, env_vars: str | None) -> JobSpec:
        known = self._known.get((text, env_vars))
        if known is None:
            known = self._known[text, env_vars] = spec_of(job_id, text, env_vars)
            return known
        return renamed(known, job_id)


def _entrypoint_of(fields: Mapping[str, Any]) -> Entrypoint:
    if "argv" in fields:
        return CommandEntrypoint(tuple(fields["argv"]))
    return CallableEntrypoint(fields["payload_digest"], fields["display_name"])


def resources_to_json(resources: Resources) -> dict[str, object]:
    """Return the JSON form of resources."""
    fields: dict[str, object] = {
        "cpu_millis": resources.cpu_millis,
        "memory_bytes": resources.memory_bytes,
        "disk_bytes": resources.disk_bytes,
    }
    device = resources.device
    if device is not None:
        fields["device"] = [device.kind, device.variant, device.count, device.alternatives]
    return fields


def resources_of(fields: Mapping[str, Any]) -> Resources:
    """Return the resources from JSON."""
    device = None
    if "device" in fields:
        kind, variant, count, alternatives = fields["device"]
        device = Device(kind, variant, count, tuple(alternatives))
    return Resources(
        cpu_millis=fields.get("cpu_millis", 0),
        memory_bytes=fields.get("memory_bytes", 0),
        disk_bytes=fields.get("disk_bytes", 0),
        device=device,
    )


_TO_JSON: Final[Mapping[str, Callable[[Any], object]]] = {
    "entrypoint": _entrypoint_to_json,
    "resources": resources_to_json,
    "constraints": _constraints_to_json,
    "band": int,
    "runtime": runtime_to_json,
}
"""Conversions for the fields of a spec that JSON cannot represent directly."""

_DEFAULTS: Final = {item.name: item.default for item in fields(JobSpec)}
_SPEC_FIELDS: Final = tuple(name for name in _DEFAULTS if name not in ("job_id", "env_vars"))
# Readers of every release expect these.
_ALWAYS: Final = frozenset({"entrypoint", "replicas", "max_retries_preemption", "band"})

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def _dump(value: object) -> str:
    return _ENCODER.encode(value)
