"""The state of jobs, tasks, logs and the cluster for users: plain values, independent of the wire format."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from iris.cluster.types import JobName, JobState, PriorityBand, TaskState
from rigging.timing import Timestamp


class Record:
    """A dataclass that can be printed as JSON."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data, with the names of states."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    match value:
        case Record():
            return value.to_json()
        case JobState() | TaskState() | PriorityBand():
            return value.word
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {_plain(key): item for key, item in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class JobStatus(Record):
    """The status of a job.

    Args:
        error: Why the job ended without success; empty while it lives and after success.
        pending_reason: Why its first pending task is not placed; empty if none is pending.
        submitted_at_ms: Unix time in ms, like the next two; 0 before the event.
        exit_code: The exit code of the task that decided the job's end. exit_signal is 0 if no signal ended that task.
        parent_id: Empty for a root job.
        command: A readable form of the command or callable.
        description: Its purpose, as given by its submitter.
        queue_place: Its position in its band's queue, from 1; 0 if none of its tasks is pending.
        queue_length: The number of jobs that wait in that band.
        descendant_counts: Child jobs, their child jobs and so on, by state; only in lists.
    """

    job_id: str
    state: JobState
    error: str = ""
    pending_reason: str = ""
    submitted_at_ms: int = 0
    started_at_ms: int = 0
    finished_at_ms: int = 0
    task_counts: Mapping[TaskState, int] = field(default_factory=dict, hash=False)
    exit_code: int = 0
    exit_signal: int = 0
    parent_id: str = ""
    replicas: int = 1
    deciding_task_id: str = ""
    command: str = ""
    description: str = ""
    queue_place: int = 0
    queue_length: int = 0
    descendant_counts: Mapping[JobState, int] = field(default_factory=dict, hash=False)

    @property
    def is_terminal(self) -> bool:
        return self.state.is_terminal

    @property
    def failed_tasks(self) -> int:
        """The number of tasks that failed for good. A successful job may have some, too (`max_task_failures`)."""
        return self.task_counts.get(TaskState.FAILED, 0)

    def duration_seconds(self, now_ms: int) -> float | None:
        """Return the seconds from start to end (to `now_ms` while it runs); None before the start."""
        return _duration(self.started_at_ms, self.finished_at_ms, now_ms)


@dataclass(frozen=True, slots=True)
class SilentAttempt(Record):
    """An attempt that may still run on a worker that is unreachable, or on which nothing can be stopped.

    Args:
        silent_seconds: Seconds since the worker's last message.
        is_wanted: Whether it is its task's current attempt. Other attempts are stopped once their host is reachable.
        fenced_in_seconds: For an exclusive job: seconds until the host has killed the attempt; None if only the host
            knows.
        trouble: Why a connected worker cannot stop anything; empty if it is not connected.
    """

    attempt_id: str
    worker_id: str
    silent_seconds: float
    is_wanted: bool = False
    fenced_in_seconds: float | None = None
    trouble: str = ""

    def __str__(self) -> str:
        task_id, _, number = self.attempt_id.rpartition(":")
        silence = self.trouble or f"silent for {self.silent_seconds:.0f} s"
        who = f"attempt {number} of {task_id} on worker {self.worker_id} ({silence})"
        fence = f"in {self.fenced_in_seconds:.0f} s" if self.fenced_in_seconds is not None else ""
        if self.is_wanted:
            return f"{who} may still run" + (f"; its fence ends it {fence} at the latest" if fence else "")
        by = f", or by its fence {fence} at the latest" if fence else ""
        return f"{who} will be stopped when its host {'can do so' if self.trouble else 'is reached'}{by}"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The result of a stop.

    Args:
        job_ids: The job and its live children that were stopped; none if the job had already ended.
        silent: Attempts of these jobs that may still run on unreachable hosts.
    """

    job_ids: tuple[str, ...]
    silent: tuple[SilentAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptUsage(Record):
    """The resource use of all processes of an attempt.

    Args:
        cpu_seconds: Total processor time.
        cpu_cores: Recent CPU use in cores; 0 after its end.
        memory_bytes: Current memory without the page cache. disk_bytes and processes are also current values.
        memory_peak_bytes: The highest observed value, like the other peaks.
        disk_bytes: Size of its working directory and TMPDIR.
        processes: Number of processes and threads.
        at_ms: Time of the last measurement (Unix time).
        began_at_ms: Start of the attempt (Unix time); 0 if unknown, as for attempts that ended under earlier releases.
        memory_mean_bytes: Average memory of its life so far; 0 if unknown.
    """

    attempt_id: str
    worker_id: str
    cpu_seconds: float = 0.0
    cpu_cores: float = 0.0
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    disk_bytes: int = 0
    disk_peak_bytes: int = 0
    processes: int = 0
    processes_peak: int = 0
    at_ms: int = 0
    began_at_ms: int = 0
    memory_mean_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TaskStatus(Record):
    """The status of a task. Fields are as in `JobStatus`.

    Args:
        attempt: The number of the current or last attempt, from 0; -1 before the first.
        failures: Number of attempts that failed because of the task itself. preemptions: Number of attempts that lost
            their worker.
        causes: The causes of the ended attempts, one line each, oldest first.
        silent: Its attempts that may still run on unreachable workers.
        usage: The known resource use of its attempts, oldest first.
    """

    task_id: str
    state: TaskState
    attempt: int = -1
    worker_id: str = ""
    exit_code: int = 0
    exit_signal: int = 0
    error: str = ""
    pending_reason: str = ""
    started_at_ms: int = 0
    finished_at_ms: int = 0
    failures: int = 0
    preemptions: int = 0
    causes: tuple[str, ...] = ()
    silent: tuple[SilentAttempt, ...] = ()
    usage: tuple[AttemptUsage, ...] = ()

    def duration_seconds(self, now_ms: int) -> float | None:
        """Return the seconds from start to end (to `now_ms` while it runs); None before the start."""
        return _duration(self.started_at_ms, self.finished_at_ms, now_ms)


def _duration(started_at_ms: int, finished_at_ms: int, now_ms: int) -> float | None:
    if not started_at_ms:
        return None
    return max(0.0, ((finished_at_ms or now_ms) - started_at_ms) / 1000)


class LogLine(NamedTuple):
    """A line that a task printed, without its newline. If `partial`, the next record continues the line.

    A `note` comes from iris, not from the task, and explains which output is missing, and why.
    """

    task_id: str
    attempt: int
    is_stderr: bool
    at_ms: int
    data: bytes
    partial: bool = False
    note: bool = False

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class TaskLogEntry:
    """A line that a task printed, as text.

    Args:
        timestamp: The time of printing.
        task_id: The task.
        source: "stdout", "stderr", or "iris" for a note about missing output.
        data: The line, without its newline.
        attempt_id: The attempt's number.
        key: Identifies the attempt's log.
    """

    timestamp: Timestamp
    task_id: JobName
    source: str
    data: str
    attempt_id: int = 0
    key: str = ""

    @property
    def text(self) -> str:
        """The line's text, same as `data`."""
        return self.data


def log_entries(lines: Iterable[LogLine]) -> Iterator[TaskLogEntry]:
    """Return whole lines as entries, joining partial lines."""
    held: dict[tuple[str, int, bool], bytes] = {}
    last: dict[tuple[str, int, bool], LogLine] = {}
    for line in lines:
        log = (line.task_id, line.attempt, line.is_stderr)
        if line.partial:
            held[log] = held.get(log, b"") + line.data
            last[log] = line
        else:
            yield _log_entry(line, held.pop(log, b"") + line.data)
    for log, data in held.items():
        yield _log_entry(last[log], data)


def _log_entry(line: LogLine, data: bytes) -> TaskLogEntry:
    source = "iris" if line.note else "stderr" if line.is_stderr else "stdout"
    text = data.decode(errors="replace")
    key = f"{line.task_id}:{line.attempt}"
    return TaskLogEntry(Timestamp.from_ms(line.at_ms), JobName.known(line.task_id), source, text, line.attempt, key)


@dataclass(frozen=True, slots=True)
class WorkerAttempt(Record):
    """An attempt that holds resources of a worker. `state` is a task's state, or "stopping"."""

    attempt_id: str
    state: str
    usage: AttemptUsage | None = None


FAR_CLOCK_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class WorkerStatus(Record):
    """The status of a worker. CPU is in cores, sizes are in bytes."""

    worker_id: str
    connected: bool
    cpu: float
    memory_bytes: int
    disk_bytes: int
    device: str
    committed_cpu: float
    committed_memory_bytes: int
    running_tasks: int
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    cordon_reason: str = ""
    strikes: int = 0
    last_seen_at_ms: int = 0
    is_late: bool = False
    trouble: str = ""
    """Why the worker cannot start attempts at present; empty if it can start them."""
    address: str = ""
    """Its address; "unix" on the controller's own machine."""
    version: str = ""
    protocol_version: int = 0
    clock_skew_ms: int | None = None
    """Its clock minus the controller's, with an error of at most `clock_error_ms`; None if not measured yet."""
    clock_error_ms: int = 0
    rival_address: str = ""
    """Address of another host that tried to connect as this worker in the last minute, and was refused; "" for none."""
    cordoned_by: str = ""
    """Who cordoned the worker, e.g. "admin root"; empty for the controller or if unknown."""
    cordoned_at_ms: int = 0
    committed_disk_bytes: int = 0
    committed_devices: int = 0
    used_cpu: float = 0
    """The measured CPU use of its tasks, like `used_memory_bytes`; `committed_cpu` is their reserved CPU."""
    used_memory_bytes: int = 0
    attempts: tuple[WorkerAttempt, ...] | None = None
    """Its attempts; None unless requested (`IrisClient.workers`)."""

    @property
    def has_far_clock(self) -> bool:
        """Whether the worker's clock differs by more than 5 s from the controller's, beyond the measurement error."""
        return self.clock_skew_ms is not None and abs(self.clock_skew_ms) - self.clock_error_ms > FAR_CLOCK_MS

    @property
    def state(self) -> str:
        """ "connected", or why it is not usable: "away", "late" (two heartbeats missing), "stuck", "cordoned".

        "copied" means that a second host tries to connect under the same name.
        """
        words = ["late" if self.is_late else ""] if self.connected else ["away"]
        words += ["stuck"] if self.trouble else []
        words += ["cordoned"] if self.cordon_reason else []
        words += ["copied"] if self.rival_address else []
        return ", ".join(filter(None, words)) or "connected"


@dataclass(frozen=True, slots=True)
class UserBudgetStatus(Record):
    """The limits of a user, and the current use."""

    user: str
    max_weight: float
    max_band: PriorityBand
    held_weight: float


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A snapshot of the controller's state in its remote directory. `sequence` is its last commit."""

    remote_state_dir: str
    generation: int
    sequence: int
    at_ms: int


QueryValue = None | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to a query. `truncated` means that there are more rows than the limit."""

    columns: tuple[str, ...]
    rows: tuple[tuple[QueryValue, ...], ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class ScaleGroupStatus(Record):
    """A pool of identical slices that a cluster may start, whether or not one exists.

    Attributes:
        demand: Slices that pending jobs need, beyond those that exist.
        ready, booting, failed: Numbers of slices.
        outcome: Why none is created now, e.g. "stock-out: ..."; empty while the group is open.
        next_try_ms: When one is tried again (Unix ms); 0 for not before the cluster file changes.
        trouble: What is wrong with its place, e.g. hosts that are out of reach.
    """

    name: str
    cpu: float
    memory_bytes: int
    device: str
    hosts_per_slice: int
    min_slices: int
    max_slices: int
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    demand: int = 0
    ready: int = 0
    booting: int = 0
    failed: int = 0
    outcome: str = ""
    next_try_ms: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class SliceStatus(Record):
    """A slice of a scale group.

    Args:
        state: wanted, requested, booting, joined, leaving, gone or failed, since `changed_at_ms`.
        joined_at_ms: When all of its hosts had joined (Unix ms); 0 before.
        outcome: The provider's last answer, e.g. "stock-out"; empty before the first.
        words: The provider's own words.
        reason: Why it leaves or is gone.
        asked_by: Who created it; empty for the autoscaler, which releases only its own.
    """

    name: str
    scale_group: str
    state: str
    created_at_ms: int
    changed_at_ms: int
    joined_at_ms: int = 0
    outcome: str = ""
    words: str = ""
    reason: str = ""
    asked_by: str = ""


@dataclass(frozen=True, slots=True)
class ClusterStatus(Record):
    """The controller and its workers. `idle_exit_seconds` is 0 if the controller never exits by itself."""

    version: str
    protocol_version: int
    pid: int
    state_dir: str
    started_at_ms: int
    idle_exit_seconds: float
    pending_tasks: int
    running_tasks: int
    workers: tuple[WorkerStatus, ...] = ()
    remote_state_dir: str = ""
    durability: str = "local"
    unreplicated_commits: int = 0
    last_snapshot_at_ms: int = 0
    generation: int = 0
    disk_warning: str = ""
    worker_trouble: str = ""
    partition: str = ""
    scale_groups: tuple[ScaleGroupStatus, ...] = ()
