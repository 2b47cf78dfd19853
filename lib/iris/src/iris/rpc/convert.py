"""Converts the states of jobs and tasks, and budgets, between wire and domain. Invalid messages raise
InvalidRequest.
"""

import math
from collections.abc import Iterable

from google.protobuf.message import DecodeError

from iris.domain.entities import Job, SilentAttempt, Task, UserBudget
from iris.domain.events import JobUpdated
from iris.domain.ids import AttemptId, JobId, parent_of, validate_name
from iris.domain.states import ExistingJobPolicy, JobState, PriorityBand, TaskState
from iris.domain.usage import USAGE_FIELDS, AttemptUse, Usage
from iris.domain.usage_series import TaskSeries
from iris.rpc.convert_job import spec_to_wire
from iris.rpc.convert_runtime import number
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest

_POLICIES = {
    pb.EXISTING_JOB_POLICY_UNSPECIFIED: ExistingJobPolicy.FAIL,
    pb.EXISTING_JOB_POLICY_FAIL: ExistingJobPolicy.FAIL,
    pb.EXISTING_JOB_POLICY_ADOPT: ExistingJobPolicy.ADOPT,
    pb.EXISTING_JOB_POLICY_REPLACE: ExistingJobPolicy.REPLACE,
}


def existing_policy_from_wire(value: int) -> ExistingJobPolicy:
    """Return the policy with this number. Raises an error for an unknown number."""
    for number_, policy in _POLICIES.items():
        if number_ == value:
            return policy
    known = ", ".join(policy.value for policy in ExistingJobPolicy)
    raise InvalidRequest(f"existing-job policy {value} is unknown; known are {known}")


def budget_from_wire(message: pb.UserBudget) -> UserBudget:
    """Return a user's budget. Raises InvalidRequest for an invalid name, weight or band."""
    user = validate_name(message.user)
    if not (message.max_weight >= 0 and math.isfinite(message.max_weight)):
        raise InvalidRequest(f"user {user}: max_weight is {message.max_weight}; it must be 0 (no limit) or more")
    band = number(PriorityBand, message.max_band, "priority band") if message.max_band else PriorityBand.PRODUCTION
    return UserBudget(user, message.max_weight, band)


def budget_to_wire(budget: UserBudget, held_weight: float) -> pb.UserBudget:
    """Return the wire form of a user's budget, with the user's current weight."""
    return pb.UserBudget(
        user=budget.user,
        max_weight=budget.max_weight,
        max_band=pb.PriorityBand.ValueType(int(budget.max_band)),
        held_weight=held_weight,
    )


def bundle_parts(manifest: bytes) -> set[str]:
    """Return the digests of all blobs in a bundle's manifest; empty if it is not a manifest."""
    try:
        files = pb.BundleManifest.FromString(manifest).files
    except DecodeError:
        return set()
    return {digest for file in files for digest in file.part_digests}


def job_status(job: Job, pending_reason: str = "", include_spec: bool = False) -> pb.JobStatus:
    """Return the wire form of a job.

    Args:
        job: The job.
        pending_reason: Why it is pending; empty if it is not pending.
        include_spec: Whether to include the spec.
    """
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
        description=job.spec.description,
    )


def silent_attempt(attempt: SilentAttempt) -> pb.SilentAttempt:
    """Return the wire form of an attempt that may be running on an unreachable worker."""
    return pb.SilentAttempt(
        attempt_id=attempt.attempt_id,
        worker_id=attempt.worker_id,
        silent_ms=attempt.silent_ms,
        is_wanted=attempt.is_wanted,
        fenced_in_ms=attempt.fenced_in_ms,
        trouble=attempt.trouble,
    )


def task_status(
    task: Task,
    pending_reason: str = "",
    silent: Iterable[SilentAttempt] = (),
    usage: Iterable[tuple[AttemptId, AttemptUse]] = (),
) -> pb.TaskStatus:
    """Return the wire form of a task.

    Args:
        task: The task.
        pending_reason: Why it is pending; empty if it is not pending.
        silent: Its attempts on unreachable workers.
        usage: The usage of its attempts.
    """
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
        usage=[usage_to_wire(name, use.usage, use.worker_id) for name, use in usage],
    )


def job_state_to_wire(state: JobState) -> pb.JobState.ValueType:
    """Return the wire number of a job's state."""
    return pb.JobState.ValueType(int(state))


def task_state_to_wire(state: TaskState) -> pb.TaskState.ValueType:
    """Return the wire number of a task's state."""
    return pb.TaskState.ValueType(int(state))


def job_states_from_wire(values: Iterable[int]) -> frozenset[JobState]:
    """Return the states with these numbers. Raises InvalidRequest for unknown numbers."""
    return frozenset(number(JobState, value, "job state") for value in values)


def update_from_wire(message: pb.UpdateJobRequest) -> JobUpdated:
    """Return a job's update. Raise InvalidRequest for a negative number or an unknown band."""
    told = {item.name: getattr(message, item.name) for item, _ in message.ListFields()}
    for name, value in told.items():
        if name != "job_id" and value < 0:
            raise InvalidRequest(f"job {message.job_id}: {name} is {value}; it must be 0 or more")
    if message.band not in (0, *PriorityBand):
        bands = ", ".join(f"{int(band)} {band.word}" for band in PriorityBand)
        raise InvalidRequest(f"job {message.job_id}: band is {message.band}; allowed are {bands}")
    return JobUpdated(**{**told, "job_id": JobId(message.job_id)})


def usage_to_wire(attempt_id: str, usage: Usage, worker_id: str = "") -> pb.AttemptUsage:
    """Return the wire form of an attempt's usage.

    Args:
        attempt_id: The attempt; empty if the enclosing message names it.
        usage: Its usage.
        worker_id: Its worker; empty if the receiver knows it.
    """
    numbers = {name: getattr(usage, name) for name in USAGE_FIELDS}
    return pb.AttemptUsage(attempt_id=attempt_id, worker_id=worker_id, **numbers)


def add_history(status: pb.TaskStatus, series: TaskSeries) -> None:
    """Add the points of its attempts to a task's usage."""
    for use in status.usage:
        for point in series.points(int(use.attempt_id.rpartition(":")[2])):
            use.history.add(**point._asdict())


def usage_from_wire(message: pb.AttemptUsage) -> Usage:
    """Return an attempt's usage, with 0 for negative numbers."""
    return Usage(*(max(getattr(message, name), 0) for name in USAGE_FIELDS))
