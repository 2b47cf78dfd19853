"""The life of a job as a pure state machine, for backends that run attempts themselves.

`advance` decides. The backend carries out its instructions and reports observations as events.
"""

import functools
from enum import StrEnum
from typing import Any, Final, NamedTuple

from fray.types import JobStatus


class AttemptStatus(StrEnum):
    """The outcome of an attempt or of a replica. Preemption and failure have separate retry budgets."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"


class AttemptEnd(NamedTuple):
    """The outcome of an attempt or of a replica, with the reason.

    Args:
        status: The outcome.
        reason: For messages; empty on success.
        detail: Backend-specific: an exception, or a worker's answer.
    """

    status: AttemptStatus
    reason: str = ""
    detail: Any = None


SUCCESS = AttemptEnd(AttemptStatus.SUCCEEDED)


class JobRules(NamedTuple):
    """The parts of a job's request that govern its life.

    Args:
        replicas: The number of copies that start and restart together.
        max_retries_failure: Maximum number of restarts after failures.
        max_retries_preemption: Maximum number of restarts after preemptions.
        interruptible: Whether running code can be stopped. If not, a stopped job ends at once.
        reviewed: Whether the backend reviews a failed attempt (`Review`) before it counts, because the loss of a node
            may look like a failure.
    """

    replicas: int = 1
    max_retries_failure: int = 0
    max_retries_preemption: int = 0
    interruptible: bool = True
    reviewed: bool = False


class Job(NamedTuple):
    """The state of a job.

    Args:
        rules: The job's rules, which never change.
        status: The public status.
        attempt: The number of the latest attempt, from 1; 0 before the first.
        ended: The ends of that attempt's replicas, in order of arrival.
        attempts: The ends of the earlier attempts.
        grace: Seconds the job has left to stop; None unless it is stopping.
        end: The end of the job; None until then.
    """

    rules: JobRules
    status: JobStatus = JobStatus.PENDING
    attempt: int = 0
    ended: tuple[tuple[int, AttemptEnd], ...] = ()
    attempts: tuple[AttemptEnd, ...] = ()
    grace: float | None = None
    end: AttemptEnd | None = None

    @property
    def stopping(self) -> bool:
        """Whether the job was asked to stop."""
        return self.grace is not None

    @property
    def failing(self) -> bool:
        """Whether a replica of the latest attempt has ended without success."""
        return any(end.status is not AttemptStatus.SUCCEEDED for _, end in self.ended)


@functools.lru_cache(maxsize=256)
def new_job(
    replicas: int, max_retries_failure: int, max_retries_preemption: int, interruptible: bool, reviewed: bool
) -> Job:
    """Return the initial state of a job. Jobs with equal rules share one object, because most jobs of a client are
    alike.

    Args:
        replicas: See `JobRules`, also for the other arguments.
        max_retries_failure: Maximum number of restarts after failures.
        max_retries_preemption: Maximum number of restarts after preemptions.
        interruptible: Whether running code can be stopped.
        reviewed: Whether failed attempts are reviewed before they count.
    """
    return Job(JobRules(replicas, max_retries_failure, max_retries_preemption, interruptible, reviewed))


# ---- events ----


class Begin(NamedTuple):
    """The job starts, with status running if `running`, else pending."""

    running: bool = False


class Seen(NamedTuple):
    """The latest attempt was observed running."""


class ReplicaEnded(NamedTuple):
    """A replica has ended."""

    attempt: int
    replica: int
    end: AttemptEnd


class AttemptEnded(NamedTuple):
    """An attempt ended, whatever its replicas reported: the answer to `Review`, or a failed start."""

    attempt: int
    end: AttemptEnd


class StopAsked(NamedTuple):
    """Stop the job within the given seconds. A later request only counts if it allows less time."""

    grace: float = 0.0


class Broken(NamedTuple):
    """The job cannot continue, for a reason that no retry changes."""

    end: AttemptEnd


Event = Begin | Seen | ReplicaEnded | AttemptEnded | StopAsked | Broken


# ---- instructions ----


class StartAttempt(NamedTuple):
    """Start all replicas of an attempt."""

    attempt: int


class StopAttempt(NamedTuple):
    """Stop the remaining replicas within the given seconds; None means the backend's default."""

    grace: float | None = None


class Review(NamedTuple):
    """An attempt succeeded or failed: let its replicas end, find out why it failed, and answer with `AttemptEnded`."""

    attempt: int


class TellRetry(NamedTuple):
    """Report that an attempt ended and another follows. `left` is the number of retries after that one."""

    end: AttemptEnd
    left: int


class TellEnd(NamedTuple):
    """Report once that the job has ended."""


Instruction = StartAttempt | StopAttempt | Review | TellRetry | TellEnd
Step = tuple[Job, tuple[Instruction, ...]]


_SUCCEEDED: Final = AttemptStatus.SUCCEEDED
_ONE_SUCCESS: Final = (SUCCESS,)
_TELL_END: Final = (TellEnd(),)
_FIRST_ATTEMPT: Final = (StartAttempt(1),)


def advance(job: Job, event: Event) -> Step:
    """Apply an event: return the new state of the job, and the instructions for its backend, in order.

    Late events, for an ended job or a finished attempt, change nothing.
    """
    # Every small job pays for this and what it calls: values are made by position, as `_replace` takes five times as
    # long, and a job of one replica that succeeds makes two of them.
    if job.end is not None:
        return job, ()
    if type(event) is ReplicaEnded:
        return _replica_ended(job, event)
    if type(event) is Begin:
        return _begin(job, event.running)
    if type(event) is AttemptEnded:
        return _attempt_ended(job, event.end) if event.attempt == job.attempt else (job, ())
    if type(event) is StopAsked:
        return _stop(job, event.grace)
    if type(event) is Broken:
        return _finish(job, event.end, job.attempts)
    return (job._replace(status=JobStatus.RUNNING) if job.attempt else job), ()


def _begin(job: Job, running: bool) -> Step:
    if job.attempt:
        return job, ()
    return _begun(job.rules, running), _FIRST_ATTEMPT


@functools.lru_cache(maxsize=256)
def _begun(rules: JobRules, running: bool) -> Job:
    return Job(rules, JobStatus.RUNNING if running else JobStatus.PENDING, 1)


def _replica_ended(job: Job, event: ReplicaEnded) -> Step:
    rules = job.rules
    if event.attempt != job.attempt:
        return job, ()
    if rules.replicas == 1 and not rules.reviewed:
        return _attempt_ended(job, event.end)
    if any(replica == event.replica for replica, _ in job.ended):
        return job, ()
    first_failure = event.end.status is not AttemptStatus.SUCCEEDED and not job.failing
    job = job._replace(ended=(*job.ended, (event.replica, event.end)))
    complete = len(job.ended) == rules.replicas
    told: tuple[Instruction, ...] = (StopAttempt(),) if first_failure and not complete else ()
    if rules.reviewed:
        decided = first_failure or (complete and not job.failing)
        return job, (*told, Review(job.attempt)) if decided else ()
    return _attempt_ended(job, verdict(job)) if complete else (job, told)


def verdict(job: Job) -> AttemptEnd:
    """Return how the latest attempt ended: the first failure of a replica, or a preemption if there is one among the
    failures.
    """
    failures = [end for _, end in job.ended if end.status is not AttemptStatus.SUCCEEDED]
    preempted = (end for end in failures if end.status is AttemptStatus.PREEMPTED)
    return next(preempted, failures[0] if failures else SUCCESS)


def _attempt_ended(job: Job, end: AttemptEnd) -> Step:
    attempts = (*job.attempts, end) if job.attempts or end is not SUCCESS else _ONE_SUCCESS
    status = end.status
    if status is _SUCCEEDED or job.grace is not None or status is AttemptStatus.STOPPED:
        return _finish(job, end, attempts)
    preempted = status is AttemptStatus.PREEMPTED
    budget = job.rules.max_retries_preemption if preempted else job.rules.max_retries_failure
    left = budget - sum(each.status is status for each in attempts)
    if left < 0:
        return _finish(job, end, attempts)
    following = job.attempt + 1
    return Job(job.rules, job.status, following, (), attempts), (TellRetry(end, left), StartAttempt(following))


def _stop(job: Job, grace: float) -> Step:
    if job.grace is not None and grace >= job.grace:
        return job, ()
    job = job._replace(grace=grace)
    if job.attempt == 0 or not job.rules.interruptible:
        return _finish(job, AttemptEnd(AttemptStatus.STOPPED), job.attempts)
    return job, (StopAttempt(grace),)


def _finish(job: Job, end: AttemptEnd, attempts: tuple[AttemptEnd, ...]) -> Step:
    if job.grace is not None or end.status is AttemptStatus.STOPPED:
        status = JobStatus.STOPPED
    else:
        status = JobStatus.SUCCEEDED if end.status is _SUCCEEDED else JobStatus.FAILED
    return Job(job.rules, status, job.attempt, (), attempts, job.grace, end), _TELL_END
