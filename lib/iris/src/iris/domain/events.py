"""Events of the cluster; `iris.core.rules.reduce` computes what follows from each."""

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
    """A user or a task asked for a new job; the spec is already validated. An empty key is no key."""

    spec: JobSpec
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """An authorised stop of the job, and of all below it unless `keep_children`."""

    job_id: JobId
    reason: str = ""
    keep_children: bool = False


@dataclass(frozen=True, slots=True)
class AttemptObserved:
    """A worker reports where an attempt is. May be repeated, late or out of order.

    Args:
        state: BUILDING, RUNNING or an end; PENDING: handed back, it never began and never will. Of an attempt that was
            prefilled also ASSIGNED (it waits there for its turn).
        started_at_ms: When it began to run; 0: not yet, or the worker does not say.
        usage: What it used in all, with its end; None: the worker does not say.
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
    """The scheduler chose a worker for a pending task.

    Args:
        prefilled: The worker is full: it starts the attempt in the place of one that ends there.
    """

    task_id: TaskId
    worker_id: WorkerId
    prefilled: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """The worker has room for an attempt that was prefilled: it is to start at once. Not stored."""

    attempt_id: AttemptId


@dataclass(frozen=True, slots=True)
class WorkerConnected:
    """A worker opened its session; its inventory is reconciled right after, in the same batch."""

    worker_id: WorkerId
    instance_id: str
    capacity: Resources
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerResized:
    """A connected worker offers something else than before: there is more or less room on its disk."""

    worker_id: WorkerId
    instance_id: str
    capacity: Resources


@dataclass(frozen=True, slots=True)
class WorkerTroubled:
    """A connected worker says why it cannot start anything at present, or ("") that it can again."""

    worker_id: WorkerId
    instance_id: str
    trouble: str


@dataclass(frozen=True, slots=True)
class WorkerDisconnected:
    """The session of that instance ended; its attempts go on until the worker is lost."""

    worker_id: WorkerId
    instance_id: str


@dataclass(frozen=True, slots=True)
class WorkerLate:
    """The worker was not heard for two heartbeats: nothing new for it; what it did not acknowledge goes elsewhere.

    Args:
        keeps: It fell silent together with too many others: what it did not acknowledge stays.
    """

    worker_id: WorkerId
    silent_ms: int
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class WorkerHeard:
    """A late worker spoke again in the same session."""

    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker was not heard for the timeout: its attempts are given up, but for those that wait for their host."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """The worker's host is known to be gone with all that ran there: its platform or an operator said so."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptFenced:
    """The host of an exclusive attempt has ended it by now, as it has had no contact for so long."""

    attempt_id: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptMissing:
    """The worker's inventory lacks an attempt that should be on it."""

    attempt_id: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A limit of the job ran out (`iris.core.rules.timers` finds them)."""

    job_id: JobId
    what: TimeoutKind


@dataclass(frozen=True, slots=True)
class RetryDue:
    """A task that failed has waited for its retry. Not stored."""

    task_id: TaskId


@dataclass(frozen=True, slots=True)
class LendCpu:
    """A live attempt began (or ended) a wait for its children: each `on` is paired with one off. Not stored."""

    attempt_id: AttemptId
    on: bool


@dataclass(frozen=True, slots=True)
class Preempted:
    """The scheduler takes the place of a live attempt for more urgent work; a gang goes whole."""

    attempt_id: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerCordoned:
    """Nothing new goes to the worker; with `drain` what runs there is sent elsewhere too."""

    worker_id: WorkerId
    reason: str
    drain: bool = False


@dataclass(frozen=True, slots=True)
class WorkerUncordoned:
    """The worker may be used again; what spoke against it is forgotten."""

    worker_id: WorkerId


@dataclass(frozen=True, slots=True)
class BudgetSet:
    """A user's budget from now on."""

    budget: UserBudget


@dataclass(frozen=True, slots=True)
class EndpointRegistered:
    """A live attempt answers at an address under a name; it replaces what that attempt had under the name."""

    endpoint: RegisteredEndpoint


@dataclass(frozen=True, slots=True)
class EndpointRemoved:
    """The attempt answers there no more; nothing happens when it is known no more."""

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
