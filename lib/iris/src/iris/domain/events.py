"""Events of the cluster, and their records in its history. `iris.core.rules.reduce` computes their consequences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import UserBudget
from iris.domain.ids import AttemptId, EndpointId, JobId, TaskId, WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.resources import Resources
from iris.domain.states import FailureKind, PreemptionReason, TaskState, TimeoutKind
from iris.domain.usage import Usage


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A user or a task submitted a new job with a validated spec; an empty key means none."""

    spec: JobSpec
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """An authorised stop of the job, and of its descendants unless `keep_children`."""

    job_id: JobId
    reason: str = ""
    keep_children: bool = False


@dataclass(frozen=True, slots=True)
class JobHeld:
    """Start no task of the job until it is released. Running ones continue. `by` is the caller."""

    job_id: JobId
    by: str = ""


@dataclass(frozen=True, slots=True)
class JobReleased:
    """Let the tasks of a held job start."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class JobUpdated:
    """Change parts of a live job's request; -1 leaves a part unchanged. Resources only before the first attempt.

    Args:
        band: A PriorityBand.
        timeout_ms: 0 for no limit, like `scheduling_timeout_ms`.
    """

    job_id: JobId
    band: int = -1
    timeout_ms: int = -1
    scheduling_timeout_ms: int = -1
    max_retries_failure: int = -1
    cpu_millis: int = -1
    memory_bytes: int = -1
    disk_bytes: int = -1


@dataclass(frozen=True, slots=True)
class AttemptObserved:
    """A worker reports the state of an attempt. Reports may be repeated, late or out of order.

    Args:
        state: BUILDING, RUNNING or a final state. PENDING: handed back before its start. A prefilled attempt may also
            be ASSIGNED: it is queued on the worker.
        started_at_ms: When it started to run; 0 before the start, or if the report lacks the time.
        usage: Its total resource use, reported with its end; None if the report lacks it.
    """

    attempt_id: AttemptId
    worker_id: WorkerId
    state: TaskState
    exit_code: int = 0
    exit_signal: int = 0
    error: str = ""
    failure_kind: FailureKind = FailureKind.UNSPECIFIED
    at_ms: int = 0
    started_at_ms: int = 0
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """The scheduler assigned a pending task to a worker.

    Args:
        prefilled: Whether the worker is full, so that the attempt starts when another attempt there ends.
    """

    task_id: TaskId
    worker_id: WorkerId
    prefilled: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """The worker has room for a prefilled attempt, which must start immediately. Not stored."""

    attempt_id: AttemptId


@dataclass(frozen=True, slots=True)
class WorkerConnected:
    """A worker opened its session. Its inventory is reconciled next, in the same batch."""

    worker_id: WorkerId
    instance_id: str
    capacity: Resources
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerResized:
    """A connected worker's capacity changed, because its free disk space changed."""

    worker_id: WorkerId
    instance_id: str
    capacity: Resources


@dataclass(frozen=True, slots=True)
class WorkerTroubled:
    """A connected worker reports why it cannot start attempts now, or ("") that it can again."""

    worker_id: WorkerId
    instance_id: str
    trouble: str


@dataclass(frozen=True, slots=True)
class WorkerDisconnected:
    """The session of a worker's instance ended. Its attempts continue until the worker is lost."""

    worker_id: WorkerId
    instance_id: str


@dataclass(frozen=True, slots=True)
class WorkerLate:
    """Two heartbeats of the worker are missing: it gets no new attempts, and unacknowledged attempts move elsewhere.

    Args:
        keeps: Whether it keeps its unacknowledged attempts, because too many workers fell silent together.
    """

    worker_id: WorkerId
    silent_ms: int
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class WorkerHeard:
    """A late worker sent a message again in the same session."""

    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker was silent for the timeout. Its attempts count as lost, except those that wait for their host."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """The worker's host and everything on it is gone, according to the platform or an operator."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptFenced:
    """The host of an exclusive attempt must have killed it, because its fence has expired."""

    attempt_id: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptMissing:
    """The worker's inventory lacks an attempt that it should have."""

    attempt_id: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A time limit of the job expired (`iris.core.rules.reduce` finds them)."""

    job_id: JobId
    what: TimeoutKind


@dataclass(frozen=True, slots=True)
class RetryDue:
    """A failed task's retry delay is over. Not stored."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class LendCpu:
    """A live attempt started (or ended) a wait for its children. Every `on` has a matching off. Not stored."""

    attempt_id: AttemptId
    on: bool


@dataclass(frozen=True, slots=True)
class Preempted:
    """A live attempt is preempted, and its whole gang: for more urgent work, or because a host ends."""

    attempt_id: AttemptId
    reason: str
    cause: PreemptionReason = PreemptionReason.BAND


@dataclass(frozen=True, slots=True)
class WorkerCordoned:
    """The worker gets no new attempts. With `drain` its running attempts also move elsewhere. `by` is the caller."""

    worker_id: WorkerId
    reason: str
    drain: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True)
class WorkerUncordoned:
    """The worker may be used again, and its strikes are reset."""

    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class BudgetSet:
    """A user's new budget."""

    budget: UserBudget


@dataclass(frozen=True, slots=True)
class EndpointRegistered:
    """A live attempt registered an address under a name, replacing its earlier one under that name."""

    endpoint: RegisteredEndpoint


@dataclass(frozen=True, slots=True)
class EndpointRemoved:
    """The attempt removed its endpoint. Has no effect if it is not registered."""

    endpoint_id: EndpointId


Event = (
    JobSubmitted
    | StopRequested
    | JobHeld
    | JobReleased
    | JobUpdated
    | AttemptObserved
    | Assigned
    | Begun
    | WorkerConnected
    | WorkerResized
    | WorkerTroubled
    | WorkerDisconnected
    | WorkerLate
    | WorkerHeard
    | WorkerLost
    | WorkerGone
    | AttemptFenced
    | AttemptMissing
    | TimedOut
    | RetryDue
    | LendCpu
    | Preempted
    | WorkerCordoned
    | WorkerUncordoned
    | BudgetSet
    | EndpointRegistered
    | EndpointRemoved
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The name and address of a caller; both empty for the controller itself.

    Args:
        name: A user, a job id or a worker id.
        address: The caller's IP address, or "unix" for a socket of this machine.
    """

    name: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Requested:
    """A caller used an RPC that changes no job and no worker, e.g. revoked a token.

    Args:
        action: A readable name of the RPC, e.g. "revoke users' tokens".
        subject: The entity; empty for none.
    """

    action: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class AutoCordoned:
    """The controller cordoned a worker whose host made attempts fail."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller loaded the stored state; its predecessor's memory is lost."""

    version: str


@dataclass(frozen=True, slots=True)
class SliceChanged:
    """A slice of a scale group has another state.

    Args:
        subject: The slice's name.
        became: The state's name.
        reason: Why it leaves, is gone or failed.
    """

    subject: str
    group: str
    became: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlaceClosed:
    """A scale group, quota pool or project is not tried for a while after an answer of the provider.

    Args:
        subject: The key of the closure, e.g. "group v5e".
        outcome: The answer; empty if it is open again.
        reason: The provider's words.
    """

    subject: str
    outcome: str
    reason: str = ""


UNHURRIED: Final = (ControllerStarted, Begun, LendCpu, RetryDue)
"""Kinds that are written with the next commit and need none themselves: a restart forgets their consequences, too."""

Recorded = Event | Requested | AutoCordoned | ControllerStarted | SliceChanged | PlaceClosed


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the history.

    Args:
        turn: The turn of the engine. A turn ends with a scheduling round, so the records of one turn precede its
            decisions.
        at_ms: Unix time in milliseconds.
        what: The event.
        caller: The caller who requested it.
        is_decision: Whether it is a decision of the scheduler, in this turn's round.
    """

    turn: int
    at_ms: int
    what: Recorded
    caller: Caller
    is_decision: bool = False


NOBODY: Final = Caller()
