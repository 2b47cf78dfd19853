"""Converts messages of the worker session between wire and domain."""

from collections.abc import Mapping
from dataclasses import replace

from iris.controller.workers.orders import Outgoing
from iris.core.state.view import ClusterView
from iris.domain.constraints import HOST_ADDRESS_ATTRIBUTE
from iris.domain.events import AttemptObserved
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import JobSpec, is_gang
from iris.domain.states import FailureKind, PreemptionReason, TaskState
from iris.domain.usage import Usage
from iris.rpc.convert import usage_from_wire
from iris.rpc.convert_job import entrypoint_to_wire, environment_to_wire, resources_to_wire
from iris.rpc.convert_runtime import number, runtime_to_wire
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest

OBSERVABLE_STATES = frozenset(
    {
        TaskState.PENDING,
        TaskState.ASSIGNED,
        TaskState.BUILDING,
        TaskState.RUNNING,
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.KILLED,
        TaskState.WORKER_FAILED,
    }
)


def observation_from_wire(message: pb.Observation, worker_id: WorkerId, shift_ms: int = 0) -> AttemptObserved:
    """Return a worker's observation, with times on this host's clock.

    Args:
        message: The worker's report.
        worker_id: The worker.
        shift_ms: Milliseconds to add to the worker's times (see `clock_shift`).
    """
    state = number(TaskState, message.state, f"attempt {message.attempt_id}: state")
    if state not in OBSERVABLE_STATES:
        raise InvalidRequest(f"attempt {message.attempt_id}: a worker cannot observe the state {state.word}")
    return AttemptObserved(
        attempt_id=AttemptId(message.attempt_id),
        worker_id=worker_id,
        state=state,
        exit_code=message.exit_code,
        exit_signal=message.exit_signal,
        error=message.error,
        failure_kind=number(FailureKind, message.failure, f"attempt {message.attempt_id}: failure kind"),
        at_ms=_shifted(message.at_ms, shift_ms),
        started_at_ms=_shifted(message.started_at_ms, shift_ms),
        usage=shifted_usage(message.usage, shift_ms) if message.HasField("usage") else None,
    )


def shifted_usage(message: pb.AttemptUsage, shift_ms: int) -> Usage:
    """Return an attempt's resource use, with times on this host's clock. Arguments as in `observation_from_wire`."""
    usage = usage_from_wire(message)
    return replace(usage, at_ms=_shifted(usage.at_ms, shift_ms), memory_mean_bytes=0)


def clock_shift(sent_at_ms: int, now_ms: int) -> int:
    """Return this host's clock minus the worker's in ms, from the worker's latest message; 0 if unknown."""
    return now_ms - sent_at_ms if sent_at_ms > 0 else 0


def _shifted(at_ms: int, shift_ms: int) -> int:
    return max(at_ms + shift_ms, 1) if at_ms > 0 else 0


def launch_to_wire(spec: JobSpec, job_token: str) -> pb.Launch:
    # What is only held is not the tasks' own: their worker never hears of the accelerators.
    """Return the launch of a job's attempts. `job_token` authenticates their calls to the controller."""
    resources = replace(spec.resources, device=None) if spec.reserve else spec.resources
    return pb.Launch(
        job_id=spec.job_id,
        entrypoint=entrypoint_to_wire(spec.entrypoint),
        environment=environment_to_wire(spec),
        bundle_digest=spec.bundle_digest,
        resources=resources_to_wire(resources),
        ports=spec.ports,
        replicas=spec.replicas,
        job_token=job_token,
        exclusive=spec.exclusive,
        fence_after_ms=spec.fence_after_ms,
        enforced=spec.enforced,
        health_cmd=spec.health_cmd,
        health_interval_ms=spec.health_interval_ms,
        health_timeout_ms=spec.health_timeout_ms,
        health_retries=spec.health_retries,
        stall_timeout_ms=spec.stall_timeout_ms,
        grace_ms=spec.grace_ms,
        runtime=runtime_to_wire(spec.runtime),
    )


def relaunch(launch: pb.Launch, job_id: JobId, job_token: str) -> pb.Launch:
    """Return the launch of a job that differs from another job only in its name.

    Args:
        launch: The launch of the other job.
        job_id: This job.
        job_token: The token of this job.
    """
    copy = pb.Launch()
    copy.CopyFrom(launch)
    copy.job_id, copy.job_token = job_id, job_token
    return copy


def ending_of(message: pb.WorkerMessage) -> PreemptionReason | None:
    """Return why the platform stops a leaving worker's host; None if it does not."""
    if not message.host_ends:
        return None
    return PreemptionReason.MAINTENANCE if message.ending == PreemptionReason.MAINTENANCE else PreemptionReason.SPOT


def _stop(attempt: AttemptId, reason: str, preemption: str, grace_ms: int) -> pb.StopAttempt:
    return pb.StopAttempt(attempt_id=attempt, grace_ms=grace_ms, reason=reason, preemption=preemption)


def gang_to_wire(view: ClusterView, job_id: JobId) -> pb.Gang | None:
    """Return the hosts of a gang's members; None for independent tasks, and while a member has no host."""
    if not is_gang(view.jobs[job_id].spec):
        return None
    tasks = view.tasks[job_id]
    workers = [view.workers.get(task.worker_id) if task.worker_id is not None else None for task in tasks]
    hosts = [worker.attributes.get(HOST_ADDRESS_ATTRIBUTE, "") for worker in workers if worker is not None]
    return pb.Gang(hosts=hosts, attempt=tasks[0].attempt) if len(hosts) == len(tasks) else None


def run_attempts_to_wire(
    launch: pb.Launch, attempts: Mapping[tuple[int, int], bool], gang: pb.Gang | None = None
) -> pb.RunAttempts:
    """Return the message for `attempts`: (task index, attempt number), and whether each is prefilled."""
    return pb.RunAttempts(
        launch=launch,
        gang=gang,
        attempts=[
            pb.AttemptRef(task_index=index, attempt=attempt, prefilled=prefilled)
            for (index, attempt), prefilled in attempts.items()
        ],
    )


def outgoing_to_wire(
    outgoing: Outgoing, run: list[pb.RunAttempts], revision: int, grace_ms: int, now_ms: int = 0
) -> pb.ControllerMessage:
    """Return one message with all pending orders for a worker.

    Args:
        outgoing: The pending orders.
        run: The attempts to start, with their launches.
        revision: The number of the desired set.
        grace_ms: Time between SIGTERM and SIGKILL of a stop that is no preemption.
        now_ms: The controller's clock, for an acknowledged heartbeat.
    """
    message = pb.ControllerMessage(
        log_acks=[pb.LogAck(attempt_id=attempt, offset=offset) for attempt, offset in outgoing.log_acks.items()],
        beat_ack=outgoing.beat_ack,
        sent_at_ms=now_ms,
        execs=outgoing.execs,
        exec_ends=outgoing.exec_ends,
    )
    if outgoing.goodbye is not None:
        message.goodbye.CopyFrom(pb.Goodbye(reason=outgoing.goodbye.reason, exit=outgoing.goodbye.exit))
    elif outgoing.has_desired:
        message.desired.CopyFrom(
            pb.Desired(
                revision=revision,
                run=run,
                stop=[
                    _stop(attempt, reason, *outgoing.notices.get(attempt, ("", grace_ms)))
                    for attempt, reason in outgoing.stop.items()
                ],
                withdraw=list(outgoing.withdraw),
                forget=list(outgoing.forget),
            )
        )
    return message
