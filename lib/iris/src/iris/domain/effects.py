"""Actions left to the edge, to be done once the changes they came with are committed."""

from dataclasses import dataclass

from iris.domain.ids import AttemptId, EndpointId, JobId, WorkerId


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """The worker is to have this attempt.

    Args:
        prefilled: It starts in the place of one that ends there, not before.
    """

    attempt_id: AttemptId
    worker_id: WorkerId
    prefilled: bool = False


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """The worker is to end this attempt and report its end."""

    attempt_id: AttemptId
    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class WithdrawAttempt:
    """The worker is to hand this attempt back (PENDING), unless it has begun."""

    attempt_id: AttemptId
    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class ForgetAttempt:
    """The end of this attempt is settled; the worker may drop it."""

    attempt_id: AttemptId
    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class JobChanged:
    """The job is in another state than before (also when that is its end), or goes on without a task that failed."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is in a terminal state; stopped attempts of it may still be on their way out."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobSettled:
    """The job has ended and no attempt of it is left on any worker. Follows JobEnded, at once when nothing ran."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobForgotten:
    """The job is no longer known: it had ended long ago, and its history is removed."""

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
