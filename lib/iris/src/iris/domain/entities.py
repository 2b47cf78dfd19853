"""The cluster's state as immutable records: jobs, their tasks, and workers.

Times are Unix milliseconds, 0 = not yet. Records are replaced, never modified.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, attempt_id
from iris.domain.job_spec import JobSpec
from iris.domain.resources import Resources
from iris.domain.states import LIVE_TASK_STATES, JobState, PreemptionReason, PriorityBand, TaskState

NO_TASKS: tuple[int, ...] = (0,) * (max(TaskState) + 1)


@dataclass(frozen=True, slots=True)
class Job:
    """A submitted job.

    Args:
        error: Why the job ended without success, as one readable chain; empty while it lives and after success.
        exit_code: The exit code of the task that decided the end. exit_signal: Its signal; 0 for none.
        deciding_task_id: The task that decided the end; None for a stop or a limit.
        sequence: Its position in the order of submission, unique in the cluster.
        task_counts: The number of tasks in each state, indexed by the TaskState's number.
        first_attempt: Attempts below this number belong to an ended job that had the same name.
        hold: Why no task may start although the job lives: "held by ann since ..."; empty if it is not held.
        waits: The part of `JobSpec.after` whose jobs have not ended. Until it is empty, no task starts.
        ready_at_ms: When the latest of its waits ended; 0 if none has.
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
    hold: str = ""
    waits: str = ""
    ready_at_ms: int = 0

    @property
    def job_id(self) -> JobId:
        """The job's name."""
        return self.spec.job_id

    @property
    def is_barred(self) -> bool:
        """Return whether no task may start: the job is held, or waits for other jobs."""
        return bool(self.hold or self.waits)

    def may_start(self, waiting: int) -> int:
        """Return how many of its waiting tasks may start now (see `JobSpec.max_running`)."""
        if not self.spec.max_running:
            return waiting
        return max(0, min(waiting, self.spec.max_running - sum(self.task_counts[state] for state in LIVE_TASK_STATES)))

    def count(self, state: TaskState) -> int:
        """Return the number of its tasks in `state`."""
        return self.task_counts[state]

    @property
    def counts(self) -> dict[TaskState, int]:
        """Return the non-zero numbers of tasks by state."""
        return {TaskState(number): count for number, count in enumerate(self.task_counts) if count}


@dataclass(frozen=True, slots=True)
class Task:
    """One replica of a job.

    Args:
        attempt: The number of the current or last attempt; below the job's `first_attempt` (-1 at first) before any.
        worker_id: The worker of the current or last attempt; None before the first and while waiting for a retry.
        failures: Number of attempts that failed because of the user's code. preemptions: Number of attempts that lost
            their worker.
        causes: The causes of the ended attempts, one line each, oldest first.
        failure_times: The times of the latest failures (Unix ms), as many as the job's retry window needs.
        retry_at_ms: A failed task is not assigned before this time; 0 for no delay.
        burnt: The highest used attempt number, if an earlier attempt is current again; -1 if that is `attempt`.
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
        """Return the number of the task's next attempt. Numbers are never reused."""
        return max(self.attempt, self.burnt) + 1

    @property
    def attempt_id(self) -> AttemptId:
        """The id of the current or last attempt."""
        return attempt_id(self.task_id, self.attempt)


@dataclass(frozen=True, slots=True)
class Worker:
    """An agent on one host.

    Args:
        instance_id: Identifies one run of its guardian.
        connected: Whether its session is open. Disconnected workers get no assignments.
        is_late: Whether two heartbeats are missing. Late workers get no assignments. Not stored.
        last_seen_at_ms: When it connected, or when its session ended.
        cordon_reason: Why it gets no new assignments; empty if it is not cordoned. Survives reconnections.
        strikes: The number of consecutive attempts that failed because of the host: a failed start or a device error.
        cordoned_by: Who cordoned it, e.g. "admin root"; empty for the controller. cordoned_at_ms: 0 if unknown.
        trouble: Why it cannot start attempts now, as it reports; empty for none. Not stored.
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
    cordoned_by: str = ""
    cordoned_at_ms: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the worker may get new attempts."""
        return self.connected and not (self.cordon_reason or self.is_late or self.trouble)


@dataclass(frozen=True, slots=True)
class Stopping:
    """An unwanted attempt, which holds its worker's resources until it has ended.

    Args:
        resources: Its resources; none if it was prefilled and has not started.
        found: Whether it counted as lost, but runs or may run on its worker, which may then exceed its capacity.
        notice: Why it was preempted, and ms between the notice and SIGKILL; None for a plain stop.
    """

    job_id: JobId
    worker_id: WorkerId
    resources: Resources
    found: bool = False
    notice: tuple[PreemptionReason, int] | None = None


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt that counts as lost because its worker was unreachable. It may still run.

    When its worker reconnects, it becomes current again, unless a successor has started; then it is stopped. Never used
    for a job with `waits_for_host`.

    Args:
        may_return: Whether it was wanted when it was lost. If not, it had been asked to stop.
        is_charged: Whether its loss counted as a preemption of its task.
        endpoints: Its endpoints, because it does not register them again.
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
        max_weight: The limit of concurrent weight in the units of `iris.domain.resources.weight` (a core is 1). Beyond
            the limit the user's jobs run as batch. 0 for no limit.
        max_band: The most urgent band that the user may use.
    """

    user: str
    max_weight: float = 0
    max_band: PriorityBand = PriorityBand.PRODUCTION


@dataclass(frozen=True, slots=True)
class JobsPerUser:
    """Maximum numbers of root jobs per user; 0 for no limit.

    Args:
        max_pending: Further submissions are refused. max_running: Further jobs stay pending.
    """

    max_pending: int = 0
    max_running: int = 0


@dataclass(frozen=True, slots=True)
class SilentAttempt:
    """An attempt that may still run on a worker that is silent or cannot stop attempts.

    Args:
        is_wanted: Whether it is its task's current attempt. Other attempts are stopped once their host is reachable.
        fenced_in_ms: For an exclusive job: ms until the host has killed the attempt; 0 if only the host knows.
        trouble: Why a connected worker cannot stop attempts; empty if it is not connected.
    """

    attempt_id: AttemptId
    worker_id: WorkerId
    silent_ms: int
    is_wanted: bool
    fenced_in_ms: int
    trouble: str = ""
