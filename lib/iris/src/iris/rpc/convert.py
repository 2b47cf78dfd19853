"""Wire ↔ domain for jobs, tasks and resources. Nothing here decides; what the wire cannot mean is InvalidRequest."""

import math
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.entities import (
    DEFAULT_FENCE_AFTER_MS,
    CallableEntrypoint,
    CommandEntrypoint,
    Entrypoint,
    Job,
    JobSpec,
    Task,
    UserBudget,
    renamed,
)
from iris.domain.ids import parent_of, validate_job_id, validate_name
from iris.domain.resources import Device, Resources
from iris.domain.silence import SilentAttempt
from iris.domain.states import ExistingJobPolicy, JobState, PriorityBand, TaskState
from iris.rpc import iris_pb2 as pb
from iris.rpc.convert_runtime import runtime_from_wire, runtime_to_wire
from rigging.errors import InvalidRequest

_Number = TypeVar("_Number", bound=IntEnum)

_KEPT_SPECS: Final = 64
_KEPT_BYTES: Final = 64 * 1024


def number(kind: type[_Number], value: int, what: str) -> _Number:
    """The member of `kind` with this number; InvalidRequest names `what` and the numbers there are."""
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f"{member.value} {member.name}" for member in kind)
        raise InvalidRequest(f"{what} {value} is unknown; known are {known}") from None


def resources_from_wire(message: pb.Resources) -> Resources:
    device = None
    if message.HasField("device") and message.device.kind:
        wire = message.device
        device = Device(wire.kind, wire.variant, wire.count, tuple(wire.alternatives))
    return Resources(message.cpu_millis, message.memory_bytes, message.disk_bytes, device)


def resources_to_wire(resources: Resources) -> pb.Resources:
    message = pb.Resources(
        cpu_millis=resources.cpu_millis, memory_bytes=resources.memory_bytes, disk_bytes=resources.disk_bytes
    )
    device = resources.device
    if device is not None:
        message.device.CopyFrom(
            pb.Device(
                kind=device.kind, variant=device.variant, count=device.count, alternatives=list(device.alternatives)
            )
        )
    return message


def entrypoint_from_wire(message: pb.Entrypoint) -> Entrypoint:
    kind = message.WhichOneof("kind")
    if kind == "command":
        return CommandEntrypoint(tuple(message.command.argv))
    if kind == "callable":
        return CallableEntrypoint(message.callable.payload_digest, message.callable.display_name)
    raise InvalidRequest("the job has no entrypoint: give a command or a callable")


def entrypoint_to_wire(entrypoint: Entrypoint) -> pb.Entrypoint:
    if isinstance(entrypoint, CommandEntrypoint):
        return pb.Entrypoint(command=pb.Command(argv=entrypoint.argv))
    return pb.Entrypoint(
        callable=pb.Callable(payload_digest=entrypoint.payload_digest, display_name=entrypoint.display_name)
    )


def spec_from_wire(message: pb.JobSpec, default_band: PriorityBand = PriorityBand.INTERACTIVE) -> JobSpec:
    """The spec as asked for; `default_band` is taken when the message names no band."""
    environment = message.environment
    return JobSpec(
        job_id=validate_job_id(message.job_id),
        entrypoint=entrypoint_from_wire(message.entrypoint),
        resources=resources_from_wire(message.resources),
        extras=tuple(environment.extras),
        pip_packages=tuple(environment.pip_packages),
        env_vars=dict(environment.env_vars),
        bundle_digest=message.bundle_digest,
        replicas=message.replicas,
        max_retries_failure=message.max_retries_failure,
        max_retries_preemption=message.max_retries_preemption,
        timeout_ms=message.timeout_ms,
        scheduling_timeout_ms=message.scheduling_timeout_ms,
        constraints=tuple(
            Constraint(c.key, number(ConstraintOp, c.op, f"constraint {c.key!r}: operator"), tuple(c.values), c.soft)
            for c in message.constraints
        ),
        coscheduling_group_by=message.coscheduling_group_by,
        ports=tuple(message.ports),
        band=number(PriorityBand, message.band, "priority band") if message.band else default_band,
        max_task_failures=message.max_task_failures,
        reserve=message.reserve,
        exclusive=message.exclusive,
        fence_after_ms=message.fence_after_ms or (DEFAULT_FENCE_AFTER_MS if message.exclusive else 0),
        runtime=runtime_from_wire(message.runtime if message.HasField("runtime") else None),
    )


class SpecReader:
    """Reads jobs from the wire. Those that differ in their names only are read once and share their parts."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, PriorityBand], JobSpec] = {}

    def read(self, message: pb.JobSpec, default_band: PriorityBand) -> JobSpec:
        """As `spec_from_wire`."""
        nameless = pb.JobSpec()
        nameless.CopyFrom(message)
        nameless.ClearField("job_id")
        key = (nameless.SerializeToString(), default_band)
        known = self._known.get(key)
        if known is not None:
            return renamed(known, validate_job_id(message.job_id))
        spec = spec_from_wire(message, default_band)
        if len(key[0]) <= _KEPT_BYTES:
            if len(self._known) >= _KEPT_SPECS:
                self._known.clear()
            self._known[key] = spec
        return spec


_POLICIES = {
    pb.EXISTING_JOB_POLICY_UNSPECIFIED: ExistingJobPolicy.FAIL,
    pb.EXISTING_JOB_POLICY_FAIL: ExistingJobPolicy.FAIL,
    pb.EXISTING_JOB_POLICY_ADOPT: ExistingJobPolicy.ADOPT,
    pb.EXISTING_JOB_POLICY_REPLACE: ExistingJobPolicy.REPLACE,
}


def existing_policy_from_wire(value: int) -> ExistingJobPolicy:
    """The policy of that number; one that this release does not know is refused, not guessed."""
    for number_, policy in _POLICIES.items():
        if number_ == value:
            return policy
    known = ", ".join(policy.value for policy in ExistingJobPolicy)
    raise InvalidRequest(f"existing-job policy {value} is unknown; known are {known}")


def budget_from_wire(message: pb.UserBudget) -> UserBudget:
    """A user's budget. Raises InvalidRequest for a bad name, weight or band."""
    user = validate_name(message.user)
    if not (message.max_weight >= 0 and math.isfinite(message.max_weight)):
        raise InvalidRequest(f"user {user}: max_weight is {message.max_weight}; it must be 0 (no limit) or more")
    band = number(PriorityBand, message.max_band, "priority band") if message.max_band else PriorityBand.PRODUCTION
    return UserBudget(user, message.max_weight, band)


def budget_to_wire(budget: UserBudget, held_weight: float) -> pb.UserBudget:
    return pb.UserBudget(
        user=budget.user,
        max_weight=budget.max_weight,
        max_band=pb.PriorityBand.ValueType(int(budget.max_band)),
        held_weight=held_weight,
    )


def bundle_parts(manifest: bytes) -> set[str]:
    """The digests of all blobs that a bundle's manifest names; none when it is no manifest."""
    try:
        files = pb.BundleManifest.FromString(manifest).files
    except DecodeError:
        return set()
    return {digest for file in files for digest in file.part_digests}


def environment_to_wire(spec: JobSpec, with_env_vars: bool = True) -> pb.Environment:
    return pb.Environment(
        extras=spec.extras, pip_packages=spec.pip_packages, env_vars=dict(spec.env_vars) if with_env_vars else {}
    )


def spec_to_wire(spec: JobSpec) -> pb.JobSpec:
    """The spec as shown to people: without env_vars, which may hold secrets."""
    return pb.JobSpec(
        job_id=spec.job_id,
        entrypoint=entrypoint_to_wire(spec.entrypoint),
        resources=resources_to_wire(spec.resources),
        environment=environment_to_wire(spec, with_env_vars=False),
        bundle_digest=spec.bundle_digest,
        replicas=spec.replicas,
        max_retries_failure=spec.max_retries_failure,
        max_retries_preemption=spec.max_retries_preemption,
        timeout_ms=spec.timeout_ms,
        scheduling_timeout_ms=spec.scheduling_timeout_ms,
        constraints=[
            pb.Constraint(key=c.key, op=pb.ConstraintOp.ValueType(int(c.op)), values=c.values, soft=c.soft)
            for c in spec.constraints
        ],
        coscheduling_group_by=spec.coscheduling_group_by,
        ports=spec.ports,
        band=pb.PriorityBand.ValueType(int(spec.band)),
        max_task_failures=spec.max_task_failures,
        reserve=spec.reserve,
        exclusive=spec.exclusive,
        fence_after_ms=spec.fence_after_ms,
        runtime=runtime_to_wire(spec.runtime),
    )


def job_status(job: Job, pending_reason: str = "", include_spec: bool = False) -> pb.JobStatus:
    return pb.JobStatus(
        job_id=job.job_id,
        state=job_state_to_wire(job.state),
        error=job.error,
        pending_reason=pending_reason,
        submitted_at_ms=job.submitted_at_ms,
        started_at_ms=job.started_at_ms,
        finished_at_ms=job.finished_at_ms,
        task_counts=[pb.TaskCount(state=task_state_to_wire(state), count=count) for state, count in job.counts.items()],
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        spec=spec_to_wire(job.spec) if include_spec else None,
        parent_id=parent_of(job.job_id) or "",
        replicas=job.spec.replicas,
        deciding_task_id=job.deciding_task_id or "",
        display_command=str(job.spec.entrypoint),
    )


def silent_attempt(attempt: SilentAttempt) -> pb.SilentAttempt:
    return pb.SilentAttempt(
        attempt_id=attempt.attempt_id,
        worker_id=attempt.worker_id,
        silent_ms=attempt.silent_ms,
        is_wanted=attempt.is_wanted,
        fenced_in_ms=attempt.fenced_in_ms,
        trouble=attempt.trouble,
    )


def task_status(task: Task, pending_reason: str = "", silent: Iterable[SilentAttempt] = ()) -> pb.TaskStatus:
    return pb.TaskStatus(
        task_id=task.task_id,
        state=task_state_to_wire(task.state),
        attempt=task.attempt,
        worker_id=task.worker_id or "",
        exit_code=task.exit_code,
        exit_signal=task.exit_signal,
        error=task.error,
        pending_reason=pending_reason,
        started_at_ms=task.started_at_ms,
        finished_at_ms=task.finished_at_ms,
        failures=task.failures,
        preemptions=task.preemptions,
        causes=task.causes,
        silent=map(silent_attempt, silent),
    )


def job_state_to_wire(state: JobState) -> pb.JobState.ValueType:
    return pb.JobState.ValueType(int(state))


def task_state_to_wire(state: TaskState) -> pb.TaskState.ValueType:
    return pb.TaskState.ValueType(int(state))


def job_states_from_wire(values: Iterable[int]) -> frozenset[JobState]:
    return frozenset(number(JobState, value, "job state") for value in values)
