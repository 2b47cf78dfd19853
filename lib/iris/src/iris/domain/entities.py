"""The truth of the cluster as immutable records: jobs, their tasks, and workers.

Times are Unix milliseconds, 0 = not yet. Records are replaced, never changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, attempt_id
from iris.domain.job_spec import JobSpec
from iris.domain.resources import Resources
from iris.domain.states import JobState, PriorityBand, TaskState

NO_TASKS: tuple[int, ...] = (0,) * (max(TaskState) + 1)


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job.

    Args:
        error: Why it ended as it did, in one readable chain; empty while it lives and when it succeeded.
        exit_code: Of the task that decided the end. exit_signal: 0 when it exited by itself.
        deciding_task_id: The task that decided the end; None when something else did.
        sequence: Order of submission, unique in the cluster.
        task_counts: Tasks in each state, indexed by the TaskState's number.
        first_attempt: Attempts below this number belong to an ended job that had the same name before.
    """

    spec: JobSpec
    state: JobState
    submitted_at_ms: int
    started_at_ms: int = 0
    finished_at_ms: int = 0
    error: str = ""
    exit_code: int = 0
    exit_signal: int = 0
    deciding_task_id: TaskId | None = None
    sequence: int = 0
    idempotency_key: str = ""
    task_counts: tuple[int, ...] = NO_TASKS
    first_attempt: int = 0

    @property
    def job_id(self) -> JobId:
        """The job's name."""
        return self.spec.job_id

    def count(self, state: TaskState) -> int:
        """How many of its tasks are in `state`."""
        return self.task_counts[state]

    @property
    def counts(self) -> dict[TaskState, int]:
        """Tasks in each state that any task is in."""
        return {TaskState(number): count for number, count in enumerate(self.task_counts) if count}


@dataclass(frozen=True, slots=True)
class Task:
    """One replica of a job.

    Args:
        attempt: Number of the current or last attempt; below the job's `first_attempt` (-1 at first) before any.
        worker_id: Where the current or last attempt is or was; None before the first and while waiting for a retry.
        failures: Attempts ended by the user's side. preemptions: Attempts ended by loss of their worker.
        causes: One line for each ended attempt, oldest first.
        failure_times: When the latest failures were (Unix ms), as far as a job with a retry window has to know.
        retry_at_ms: Of one that waits: it is not assigned before then, as it has failed; 0: at any time.
        burnt: The highest number that an attempt of it had, where an earlier attempt has its place again; -1: it is
            `attempt`.
    """

    task_id: TaskId
    job_id: JobId
    index: int
    state: TaskState = TaskState.PENDING
    attempt: int = -1
    worker_id: WorkerId | None = None
    failures: int = 0
    preemptions: int = 0
    exit_code: int = 0
    exit_signal: int = 0
    error: str = ""
    started_at_ms: int = 0
    finished_at_ms: int = 0
    causes: tuple[str, ...] = ()
    failure_times: tuple[int, ...] = ()
    burnt: int = -1
    retry_at_ms: int = 0

    @property
    def next_attempt(self) -> int:
        """Number of its next attempt: no number is used twice."""
        return max(self.attempt, self.burnt) + 1

    @property
    def attempt_id(self) -> AttemptId:
        """Id of the current or last attempt."""
        return attempt_id(self.task_id, self.attempt)


@dataclass(frozen=True, slots=True)
class Worker:
    """One agent on one host.

    Args:
        instance_id: New for every process start of the agent.
        connected: Whether its session is open; nothing is assigned to a worker that is not.
        is_late: It was not heard for two heartbeats; nothing is assigned to it until it is. Not stored.
        last_seen_at_ms: When it connected, or the session ended.
        cordon_reason: Why nothing new is assigned to it; empty: it is not cordoned. Outlives reconnections.
        strikes: Attempts in a row that ended there by a fault of the host: not started, or a device error.
        trouble: Why it cannot start anything at present, by its own account; empty: it can. Not stored.
    """

    worker_id: WorkerId
    instance_id: str
    capacity: Resources
    attributes: Mapping[str, str] = field(default_factory=dict)
    connected: bool = False
    last_seen_at_ms: int = 0
    cordon_reason: str = ""
    strikes: int = 0
    is_late: bool = False
    trouble: str = ""

    @property
    def is_open(self) -> bool:
        """Whether new attempts may be assigned to it."""
        return self.connected and not (self.cordon_reason or self.is_late or self.trouble)


@dataclass(frozen=True, slots=True)
class Stopping:
    """An attempt that nobody wants any more and that still holds its worker's resources until it has ended.

    Args:
        resources: What it holds; nothing for one that was prefilled and has not begun.
        found: It was thought gone, and its worker has it, or may have: then the worker may be over its capacity.
    """

    job_id: JobId
    worker_id: WorkerId
    resources: Resources
    found: bool = False


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt that was given up while its worker was out of reach: it may still run.

    Once its worker is heard it has its task back, unless a successor has begun; then it is stopped. Never of a job for
    which `waits_for_host` holds.

    Args:
        may_return: It was wanted when it was given up; else it had been told to stop.
        is_charged: Its loss cost its task a preemption.
        endpoints: Where it answered: it does not register again.
    """

    job_id: JobId
    worker_id: WorkerId
    resources: Resources
    may_return: bool = False
    is_charged: bool = False
    endpoints: tuple[RegisteredEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class UserBudget:
    """The budget of one user.

    Args:
        max_weight: Held at the same time, in the units of `iris.domain.resources.weight` (a core is 1); beyond it the
            user's jobs are served as batch. 0: no limit.
        max_band: The most urgent band in which the user may submit.
    """

    user: str
    max_weight: float = 0
    max_band: PriorityBand = PriorityBand.PRODUCTION


@dataclass(frozen=True, slots=True)
class SilentAttempt:
    """An attempt that may live on a worker out of reach: one that was not heard for a while, or that is in trouble.

    Args:
        is_wanted: It is its task's present attempt; else it is stopped once its host is reached.
        fenced_in_ms: By then its host has ended an exclusive one; 0: nothing but its host can say when.
        trouble: Why nothing can be stopped there, although the worker is heard; empty: it is not heard.
    """

    attempt_id: AttemptId
    worker_id: WorkerId
    silent_ms: int
    is_wanted: bool
    fenced_in_ms: int
    trouble: str = ""
