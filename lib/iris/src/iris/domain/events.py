"""Events of the cluster. `iris.core.rules.reduce` computes their consequences."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.entities import UserBudget
from iris.domain.ids import AttemptId, EndpointId, JobId, TaskId, WorkerId
from iris.domain.job_spec import JobSpec
from iris.domain.resources import Resources
from iris.domain.states import FailureKind, TaskState, TimeoutKind
from iris.domain.usage import Usage


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A user or a task requested a new job, whose spec is already validated. An empty key means none."""

    spec: JobSpec
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """An authorised stop of the job, and of its descendants unless `keep_children`."""

    job_id: JobId
    reason: str = ""
    keep_children: bool = False


@dataclass(frozen=True, slots=True)
class AttemptObserved:
    """A worker reports the state of an attempt. Reports may be repeated, late or out of order.

    Args:
        state: BUILDING, RUNNING or a final state. PENDING: handed back without ever beginning. A prefilled attempt may
            also be ASSIGNED (it waits there for its turn).
        started_at_ms: When it began to run; 0 if it has not, or the worker does not say.
        usage: Its total resource use, reported with its end; None if the worker does not say.
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
        prefilled: Whether the worker is full, so that the attempt starts when another ends there.
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
    """A connected worker's capacity changed, because its disk has more or less room."""

    worker_id: WorkerId
    instance_id: str
    capacity: Resources


@dataclass(frozen=True, slots=True)
class WorkerTroubled:
    """A connected worker reports why it cannot start anything now, or ("") that it can again."""

    worker_id: WorkerId
    instance_id: str
    trouble: str


@dataclass(frozen=True, slots=True)
class WorkerDisconnected:
    """The session of that instance ended. Its attempts continue until the worker is lost."""

    worker_id: WorkerId
    instance_id: str


@dataclass(frozen=True, slots=True)
class WorkerLate:
    """The worker was not heard for two heartbeats: it gets no new attempts, and unacknowledged ones go elsewhere.

    Args:
        keeps: Whether it fell silent together with too many others. Its unacknowledged attempts then stay.
    """

    worker_id: WorkerId
    silent_ms: int
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class WorkerHeard:
    """A late worker was heard again in the same session."""

    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker was not heard for the timeout. Its attempts are given up, except those that wait for their host."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """The worker's host and everything on it is gone, according to its platform or an operator."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptFenced:
    """The host of an exclusive attempt has ended it by now, because it had no contact for long enough."""

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
    """A live attempt began (or ended) a wait for its children. Every `on` is paired with one off. Not stored."""

    attempt_id: AttemptId
    on: bool


@dataclass(frozen=True, slots=True)
class Preempted:
    """The scheduler evicts a live attempt for more urgent work. A gang is evicted as a whole."""

    attempt_id: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerCordoned:
    """The worker gets no new attempts. With `drain` its running ones are moved elsewhere, too. `by` says who asked."""

    worker_id: WorkerId
    reason: str
    drain: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True)
class WorkerUncordoned:
    """The worker may be used again, and its faults are cleared."""

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
    """The attempt removed its endpoint. Does nothing if it is not registered."""

    endpoint_id: EndpointId


Event = (
    JobSubmitted
    | StopRequested
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
