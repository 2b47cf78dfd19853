"""Effects: actions to perform after their changes are committed."""

from dataclasses import dataclass

from iris.domain.ids import AttemptId, EndpointId, JobId, WorkerId
from iris.domain.states import PreemptionReason


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Send this attempt to the worker.

    Args:
        prefilled: Whether it waits on a full worker until another attempt there ends.
    """

    attempt_id: AttemptId
    worker_id: WorkerId
    prefilled: bool = False


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """Tell the worker to end this attempt and report its end.

    Args:
        preemption: Why its capacity is taken; None if it is just stopped.
        grace_ms: With `preemption`: time between the notice and SIGKILL.
    """

    attempt_id: AttemptId
    worker_id: WorkerId
    reason: str
    preemption: PreemptionReason | None = None
    grace_ms: int = 0


@dataclass(frozen=True, slots=True)
class WithdrawAttempt:
    """Tell the worker to hand this attempt back (PENDING), unless it has started."""

    attempt_id: AttemptId
    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class ForgetAttempt:
    """The end of this attempt is settled, so the worker may drop it."""

    attempt_id: AttemptId
    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class JobChanged:
    """The job has a new state (possibly its final one), or continues without a failed task."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is in a terminal state. Its stopped attempts may still be ending."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobSettled:
    """The job has ended and no worker has its attempts any more. Follows JobEnded, immediately if no attempt ran."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """The history of a job that ended long ago is removed."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class EndpointChanged:
    """An endpoint was registered, replaced or removed."""

    endpoint_id: EndpointId


Effect = (
    StartAttempt
    | StopAttempt
    | WithdrawAttempt
    | ForgetAttempt
    | JobChanged
    | JobEnded
    | JobSettled
    | JobForgotten
    | EndpointChanged
)
