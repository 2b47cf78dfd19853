"""The client's edge to the wire format: specs to protobuf, statuses from it. The only such file of the client."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final

from iris.client.types import (
    Checkpoint,
    ClusterStatus,
    JobStatus,
    LogLine,
    QueryResult,
    QueryValue,
    SilentAttempt,
    Stopped,
    TaskStatus,
    UserBudgetStatus,
    WorkerStatus,
)
from iris.cluster.constraints import Constraint
from iris.cluster.types import (
    CoschedulingConfig,
    Entrypoint,
    EnvironmentSpec,
    ExistingJobPolicy,
    JobState,
    PriorityBand,
    ResourceSpec,
    TaskState,
)
from iris.domain.runtime import DEFAULT_RUNTIME, TaskRuntime
from iris.rpc import iris_pb2 as pb
from iris.rpc.convert_runtime import runtime_to_wire


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Everything of a submission that is decided before it goes out; times in ms, 0 for none."""

    job_id: str
    entrypoint: Entrypoint
    payload_digest: str
    resources: ResourceSpec
    environment: EnvironmentSpec
    bundle_digest: str
    replicas: int
    max_retries_failure: int
    max_retries_preemption: int
    timeout_ms: int
    scheduling_timeout_ms: int
    constraints: Sequence[Constraint]
    coscheduling: CoschedulingConfig | None
    ports: Sequence[str]
    band: PriorityBand | None
    max_task_failures: int
    reserve: bool
    exclusive: bool
    fence_after_ms: int
    runtime: TaskRuntime = DEFAULT_RUNTIME


_ALL_BUT_NAME: Final = attrgetter(*(item.name for item in fields(JobRequest) if item.name != "job_id"))


def job_spec(request: JobRequest) -> pb.JobSpec:
    """The wire form of a job."""
    spec = pb.JobSpec(
        job_id=request.job_id,
        entrypoint=_entrypoint(request.entrypoint, request.payload_digest),
        resources=_resources(request.resources),
        environment=pb.Environment(
            extras=request.environment.extras,
            pip_packages=request.environment.pip_packages,
            env_vars=request.environment.env_vars,
        ),
        bundle_digest=request.bundle_digest,
        replicas=request.replicas,
        max_retries_failure=request.max_retries_failure,
        max_retries_preemption=request.max_retries_preemption,
        timeout_ms=request.timeout_ms,
        scheduling_timeout_ms=request.scheduling_timeout_ms,
        coscheduling_group_by=request.coscheduling.group_by if request.coscheduling else "",
        ports=request.ports,
        band=pb.PriorityBand.Value(f"PRIORITY_BAND_{request.band.name if request.band else 'UNSPECIFIED'}"),
        max_task_failures=request.max_task_failures,
        reserve=request.reserve,
        exclusive=request.exclusive,
        fence_after_ms=request.fence_after_ms,
        runtime=runtime_to_wire(request.runtime),
    )
    for constraint in request.constraints:
        spec.constraints.add(
            key=constraint.key,
            op=pb.ConstraintOp.Value(f"CONSTRAINT_OP_{constraint.op.name}"),
            values=constraint.values,
            soft=constraint.soft,
        )
    return spec


class RequestWriter:
    """The wire form of submissions. A command that differs from the last one in its name only is copied from that."""

    def __init__(self) -> None:
        self._last: tuple[JobRequest, pb.JobSpec] | None = None

    def write(
        self, request: JobRequest, *, idempotency_key: str, inline_blobs: Iterable[bytes], existing: ExistingJobPolicy
    ) -> pb.SubmitJobRequest:
        """One submission."""
        last = self._last
        # The arguments of a callable are the user's: what they say of being equal is not asked for.
        if last is None or not request.entrypoint.argv or _ALL_BUT_NAME(request) != _ALL_BUT_NAME(last[0]):
            spec = job_spec(request)
            self._last = (request, spec) if request.entrypoint.argv else None
        else:
            spec = last[1]
        message = pb.SubmitJobRequest(
            spec=spec, idempotency_key=idempotency_key, inline_blobs=inline_blobs, existing=_POLICIES[existing]
        )
        message.spec.job_id = request.job_id
        return message


_POLICIES: Final = {
    policy: pb.ExistingJobPolicy.Value(f"EXISTING_JOB_POLICY_{policy.name}") for policy in ExistingJobPolicy
}


def _entrypoint(entrypoint: Entrypoint, payload_digest: str) -> pb.Entrypoint:
    if entrypoint.argv:
        return pb.Entrypoint(command=pb.Command(argv=entrypoint.argv))
    return pb.Entrypoint(callable=pb.Callable(payload_digest=payload_digest, display_name=entrypoint.display))


def _resources(resources: ResourceSpec) -> pb.Resources:
    device = resources.device
    return pb.Resources(
        cpu_millis=resources.cpu_millis,
        memory_bytes=resources.memory_bytes,
        disk_bytes=resources.disk_bytes,
        device=None
        if device is None
        else pb.Device(kind=device.kind, variant=device.variant, count=device.count, alternatives=device.alternatives),
    )


def job_status(message: pb.JobStatus) -> JobStatus:
    """A job's status from the wire."""
    return JobStatus(
        job_id=message.job_id,
        state=JobState(message.state),
        error=message.error,
        pending_reason=message.pending_reason,
        submitted_at_ms=message.submitted_at_ms,
        started_at_ms=message.started_at_ms,
        finished_at_ms=message.finished_at_ms,
        task_counts={TaskState(item.state): item.count for item in message.task_counts},
        exit_code=message.exit_code,
        exit_signal=message.exit_signal,
        parent_id=message.parent_id,
        replicas=message.replicas,
        deciding_task_id=message.deciding_task_id,
        command=message.display_command,
    )


def stopped(message: pb.StopJobResponse) -> Stopped:
    """What a stop did."""
    return Stopped(tuple(message.stopped_job_ids), tuple(map(silent_attempt, message.silent)))


def silent_attempt(message: pb.SilentAttempt) -> SilentAttempt:
    """An attempt out of reach, from the wire."""
    return SilentAttempt(
        message.attempt_id,
        message.worker_id,
        message.silent_ms / 1000,
        message.is_wanted,
        message.fenced_in_ms / 1000 if message.fenced_in_ms else None,
        message.trouble,
    )


def task_status(message: pb.TaskStatus) -> TaskStatus:
    """A task's status from the wire."""
    return TaskStatus(
        task_id=message.task_id,
        state=TaskState(message.state),
        attempt=message.attempt,
        worker_id=message.worker_id,
        exit_code=message.exit_code,
        exit_signal=message.exit_signal,
        error=message.error,
        pending_reason=message.pending_reason,
        started_at_ms=message.started_at_ms,
        finished_at_ms=message.finished_at_ms,
        failures=message.failures,
        preemptions=message.preemptions,
        causes=tuple(message.causes),
        silent=tuple(map(silent_attempt, message.silent)),
    )


def log_lines(batch: pb.LogBatch) -> Iterator[LogLine]:
    """The lines of one message of a log stream."""
    for entry in batch.entries:
        yield LogLine(entry.task_id, entry.attempt, entry.is_stderr, entry.at_ms, entry.data, entry.partial, entry.note)


def cluster_status(message: pb.ClusterStatusResponse) -> ClusterStatus:
    """The cluster's status from the wire."""
    return ClusterStatus(
        version=message.version,
        protocol_version=message.protocol_version,
        pid=message.pid,
        state_dir=message.state_dir,
        started_at_ms=message.started_at_ms,
        idle_exit_seconds=message.idle_exit_ms / 1000,
        pending_tasks=message.pending_tasks,
        running_tasks=message.running_tasks,
        remote_state_dir=message.remote_state_dir,
        durability=message.durability,
        unreplicated_commits=message.unreplicated_commits,
        last_snapshot_at_ms=message.last_snapshot_at_ms,
        generation=message.generation,
        disk_warning=message.disk_warning,
        worker_trouble=message.worker_trouble,
        workers=tuple(_worker_status(worker) for worker in message.workers),
    )


def _worker_status(message: pb.WorkerInfo) -> WorkerStatus:
    device = message.capacity.device
    return WorkerStatus(
        worker_id=message.worker_id,
        connected=message.connected,
        cpu=message.capacity.cpu_millis / 1000,
        memory_bytes=message.capacity.memory_bytes,
        disk_bytes=message.capacity.disk_bytes,
        device=f"{device.count} {device.kind} {device.variant}" if device.count else "",
        committed_cpu=message.committed.cpu_millis / 1000,
        committed_memory_bytes=message.committed.memory_bytes,
        running_tasks=message.running_tasks,
        attributes=dict(message.attributes),
        cordon_reason=message.cordon_reason,
        strikes=message.strikes,
        last_seen_at_ms=message.last_seen_at_ms,
        is_late=message.is_late,
        trouble=message.trouble,
    )


def user_budget(message: pb.UserBudget) -> UserBudgetStatus:
    """A user's budget and use."""
    band = PriorityBand(message.max_band or PriorityBand.PRODUCTION)
    return UserBudgetStatus(message.user, message.max_weight, band, message.held_weight)


def checkpoint(message: pb.CheckpointResponse) -> Checkpoint:
    """A snapshot that was made."""
    return Checkpoint(message.remote_state_dir, message.generation, message.sequence, message.at_ms)


def query_result(message: pb.QueryResponse) -> QueryResult:
    """The answer to a query."""
    rows = tuple(tuple(map(_query_value, row.values)) for row in message.rows)
    return QueryResult(tuple(message.columns), rows, message.truncated)


def _query_value(value: pb.QueryValue) -> QueryValue:
    kind = value.WhichOneof("kind")
    return None if kind is None else getattr(value, kind)
