"""The life of a job as a pure state machine, for backends that run attempts themselves.

`advance` decides; a backend carries out the instructions, and reports what it observes as events.
"""

import functools
from enum import StrEnum
from typing import Any, Final, NamedTuple

from fray.types import JobStatus


class AttemptStatus(StrEnum):
    """The end of an attempt, or of one replica of it. Preemption and failure have separate retry budgets."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"


class AttemptEnd(NamedTuple):
    """The end of an attempt, or of one replica of it, and why it came.

    Args:
        status: The kind of end.
        reason: For people; empty on success.
        detail: The backend's own: an exception, or a worker's answer.
    """

    status: AttemptStatus
    reason: str = ""
    detail: Any = None


SUCCESS = AttemptEnd(AttemptStatus.SUCCEEDED)


class JobRules(NamedTuple):
    """The part of a job's description that its life depends on.

    Args:
        replicas: Copies that start, and start over, together.
        max_retries_failure: How often it starts over after a failure.
        max_retries_preemption: How often it starts over after a preemption.
        interruptible: Whether what runs can be stopped; a job that cannot ends at once when it is told to.
        reviewed: Whether the backend looks at a failed attempt (`Review`) before it counts: the loss of a node may
            look like a failure.
    """

    replicas: int = 1
    max_retries_failure: int = 0
    max_retries_preemption: int = 0
    interruptible: bool = True
    reviewed: bool = False


class Job(NamedTuple):
    """The state of a job.

    Args:
        rules: Never change.
        status: For people.
        attempt: Number of the latest attempt, from 1; 0 before the first.
        ended: Ends of the replicas of that attempt, in the order in which they came.
        attempts: Ends of the earlier attempts.
        grace: Seconds that the job has to stop; None while it is not to stop.
        end: How the job ended; None until it has.
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
        """Whether it was told to stop."""
        return self.grace is not None

    @property
    def failing(self) -> bool:
        """Whether a replica of the latest attempt has not succeeded."""
        return any(end.status is not AttemptStatus.SUCCEEDED for _, end in self.ended)


@functools.lru_cache(maxsize=256)
def new_job(
    replicas: int, max_retries_failure: int, max_retries_preemption: int, interruptible: bool, reviewed: bool
) -> Job:
    """The beginning of a job's life; jobs that are alike share it, as most jobs of a client are alike.

    Args:
        replicas: See `JobRules`, as for the others.
        max_retries_failure: Starts over after failures.
        max_retries_preemption: Starts over after preemptions.
        interruptible: Whether what runs can be stopped.
        reviewed: Whether failed attempts are looked at before they count.
    """
    return Job(JobRules(replicas, max_retries_failure, max_retries_preemption, interruptible, reviewed))


# ---- events ----


class Begin(NamedTuple):
    """The job is to run from here on; `running`: and counts as running at once."""

    running: bool = False


class Seen(NamedTuple):
    """The latest attempt was seen running."""


class ReplicaEnded(NamedTuple):
    """A replica has ended."""

    attempt: int
    replica: int
    end: AttemptEnd


class AttemptEnded(NamedTuple):
    """An attempt is over, whatever its replicas have told: the answer to `Review`, or it could not be started."""

    attempt: int
    end: AttemptEnd


class StopAsked(NamedTuple):
    """The job is to stop within so many seconds; a later one counts only when it gives less time."""

    grace: float = 0.0


class Broken(NamedTuple):
    """The job cannot go on, for a reason that no retry changes."""

    end: AttemptEnd


Event = Begin | Seen | ReplicaEnded | AttemptEnded | StopAsked | Broken


# ---- instructions ----


class StartAttempt(NamedTuple):
    """Start all replicas of an attempt."""

    attempt: int


class StopAttempt(NamedTuple):
    """Stop the replicas that still run, within so many seconds; None for the backend's own time."""

    grace: float | None = None


class Review(NamedTuple):
    """An attempt has succeeded, or fails: let its replicas end, look why it failed, and answer with `AttemptEnded`."""

    attempt: int


class TellRetry(NamedTuple):
    """Say that an attempt ended and is followed by another; `left` more may follow that one."""

    end: AttemptEnd
    left: int


class TellEnd(NamedTuple):
    """Say, once, that the job has ended."""


Instruction = StartAttempt | StopAttempt | Review | TellRetry | TellEnd
Step = tuple[Job, tuple[Instruction, ...]]


_SUCCEEDED: Final = AttemptStatus.SUCCEEDED
_ONE_SUCCESS: Final = (SUCCESS,)
_TELL_END: Final = (TellEnd(),)
_FIRST_ATTEMPT: Final = (StartAttempt(1),)


def advance(job: Job, event: Event) -> Step:
    """Apply an event: return the job as it is then, and what its backend is to do, in this order.

    Events that come too late, of a job that has ended or an attempt that is over, change nothing.
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
    """The end of the latest attempt, by its replicas': the first failure, or a preemption among the failures."""
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
