"""The client's conversion to and from the wire format: submissions to protobuf, statuses from it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from iris.client.types import (
    AttemptUsage,
    Checkpoint,
    ClusterStatus,
    JobStatus,
    LogLine,
    QueryResult,
    QueryValue,
    ScaleGroupStatus,
    SilentAttempt,
    SliceStatus,
    Stopped,
    TaskStatus,
    UserBudgetStatus,
    WorkerAttempt,
    WorkerStatus,
)
from iris.cluster.types import ExistingJobPolicy, JobState, PriorityBand, TaskState
from iris.domain.job_spec import JobSpec, is_alike
from iris.rpc.convert_job import spec_to_wire
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import decode_all


class RequestWriter:
    """Creates the messages of submissions. Copies the last message for a job that differs only in its name."""

    def __init__(self) -> None:
        self._last: tuple[JobSpec, pb.JobSpec] | None = None

    def write(
        self,
        spec: JobSpec,
        *,
        names_band: bool,
        idempotency_key: str,
        inline_blobs: Iterable[bytes],
        existing: ExistingJobPolicy,
    ) -> pb.SubmitJobRequest:
        """Return the message of one submission.

        Args:
            spec: The job.
            names_band: Whether the message contains the job's band; if not, the controller chooses it.
            idempotency_key: The key of the submission.
            inline_blobs: Blobs to send inside the message.
            existing: What to do if a live job has that name.
        """
        last = self._last
        if last is None or not is_alike(spec, last[0]):
            last = self._last = (spec, spec_to_wire(spec, with_env_vars=True))
        message = pb.SubmitJobRequest(
            spec=last[1], idempotency_key=idempotency_key, inline_blobs=inline_blobs, existing=_POLICIES[existing]
        )
        message.spec.job_id = spec.job_id
        if not names_band:
            message.spec.ClearField("band")
        return message


_POLICIES: Final = {
    policy: pb.ExistingJobPolicy.Value(f"EXISTING_JOB_POLICY_{policy.name}") for policy in ExistingJobPolicy
}


def job_status(message: pb.JobStatus) -> JobStatus:
    """Return a job's status from the wire."""
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
        description=message.description,
        queue_place=message.queue_place,
        queue_length=message.queue_length,
        descendant_counts={JobState(item.state): item.count for item in message.descendant_counts},
    )


def stopped(message: pb.StopJobResponse) -> Stopped:
    """Return the result of a stop."""
    return Stopped(tuple(message.stopped_job_ids), tuple(map(silent_attempt, message.silent)))


def silent_attempt(message: pb.SilentAttempt) -> SilentAttempt:
    """Return an unreachable attempt from the wire."""
    return SilentAttempt(
        message.attempt_id,
        message.worker_id,
        message.silent_ms / 1000,
        message.is_wanted,
        message.fenced_in_ms / 1000 if message.fenced_in_ms else None,
        message.trouble,
    )


def task_status(message: pb.TaskStatus) -> TaskStatus:
    """Return a task's status from the wire."""
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
        usage=tuple(map(attempt_usage, message.usage)),
    )


def attempt_usage(message: pb.AttemptUsage) -> AttemptUsage:
    """Return an attempt's resource use from the wire."""
    return AttemptUsage(
        attempt_id=message.attempt_id,
        worker_id=message.worker_id,
        cpu_seconds=message.cpu_ms / 1000,
        cpu_cores=message.cpu_millis / 1000,
        memory_bytes=message.memory_bytes,
        memory_peak_bytes=message.memory_peak_bytes,
        disk_bytes=message.disk_bytes,
        disk_peak_bytes=message.disk_peak_bytes,
        processes=message.processes,
        processes_peak=message.processes_peak,
        at_ms=message.at_ms,
        began_at_ms=message.began_at_ms,
        memory_mean_bytes=message.memory_mean_bytes,
    )


def log_lines(batch: pb.LogBatch) -> Iterator[LogLine]:
    """Return the lines in one message of a log stream."""
    for part in batch.parts:
        task_id, attempt = part.task_id, part.attempt
        for is_stderr, at_ms, data, partial, _, note, _ in decode_all(part.records):
            yield LogLine(task_id, attempt, is_stderr, at_ms, data, partial, note)


def cluster_status(message: pb.ClusterStatusResponse) -> ClusterStatus:
    """Return the cluster's status from the wire."""
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
        partition=message.partition,
        workers=tuple(_worker_status(worker) for worker in message.workers),
        scale_groups=tuple(_scale_group(group) for group in message.scale_groups),
    )


def _scale_group(message: pb.ScaleGroupInfo) -> ScaleGroupStatus:
    device = message.capacity.device
    return ScaleGroupStatus(
        name=message.name,
        cpu=message.capacity.cpu_millis / 1000,
        memory_bytes=message.capacity.memory_bytes,
        device=f"{device.count} {device.kind} {device.variant}" if device.count else "",
        hosts_per_slice=message.hosts_per_slice,
        min_slices=message.min_slices,
        max_slices=message.max_slices,
        attributes=dict(message.attributes),
        demand=message.demand,
        ready=message.ready,
        booting=message.booting,
        failed=message.failed,
        outcome=message.outcome,
        next_try_ms=message.next_try_ms,
        trouble=message.trouble,
    )


def slice_status(message: pb.SliceInfo) -> SliceStatus:
    """Return a slice from the wire."""
    return SliceStatus(**{name: getattr(message, name) for name in SliceStatus.__dataclass_fields__})


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
        address=message.address,
        version=message.version,
        protocol_version=message.protocol_version,
        clock_skew_ms=message.clock_skew_ms if message.HasField("clock_skew_ms") else None,
        clock_error_ms=message.clock_error_ms,
        rival_address=message.rival_address,
        cordoned_by=message.cordoned_by,
        cordoned_at_ms=message.cordoned_at_ms,
        committed_disk_bytes=message.committed.disk_bytes,
        committed_devices=message.committed.device.count,
        used_cpu=message.used_cpu_millis / 1000,
        used_memory_bytes=message.used_memory_bytes,
    )


def worker_with_attempts(message: pb.WorkerInfo) -> WorkerStatus:
    """Return a worker with its attempts."""
    attempts = tuple(
        WorkerAttempt(item.attempt_id, item.state, attempt_usage(item.usage) if item.HasField("usage") else None)
        for item in message.attempts
    )
    return replace(_worker_status(message), attempts=attempts)


def user_budget(message: pb.UserBudget) -> UserBudgetStatus:
    """Return a user's budget and use."""
    band = PriorityBand(message.max_band or PriorityBand.PRODUCTION)
    return UserBudgetStatus(message.user, message.max_weight, band, message.held_weight)


def checkpoint(message: pb.CheckpointResponse) -> Checkpoint:
    """Return the created snapshot."""
    return Checkpoint(message.remote_state_dir, message.generation, message.sequence, message.at_ms)


def query_result(message: pb.QueryResponse) -> QueryResult:
    """Return the answer to a query."""
    rows = tuple(tuple(map(_query_value, row.values)) for row in message.rows)
    return QueryResult(tuple(message.columns), rows, message.truncated)


def _query_value(value: pb.QueryValue) -> QueryValue:
    kind = value.WhichOneof("kind")
    return None if kind is None else getattr(value, kind)
