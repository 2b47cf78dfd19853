"""The processes on the simulated hosts, as the ground truth for checking the controller."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from iris.domain.ids import AttemptId, JobId, TaskId, parse_attempt_id, parse_task_id
from iris.domain.job_spec import JobSpec, is_gang
from iris.domain.resources import Resources


@dataclass(eq=False)
class Running:
    """One process on one host.

    Args:
        has_lent: Whether it is waiting for children, so that its cpu may be lent.
    """

    attempt_id: AttemptId
    task_id: TaskId
    job_id: JobId
    number: int
    host: str
    resources: Resources
    is_gang: bool
    is_exclusive: bool
    started_s: float
    has_lent: bool = False


@dataclass
class Physics:
    """All processes, and the exits of ended ones.

    Attributes:
        violations: Processes that must not have run.
        excused: Attempts on workers that were declared late or lost while unreachable. Only these attempts may overlap
        with their successor, because they cannot be stopped before the worker is reachable again. Attempts of an
        exclusive job are not among them, because their host must end them in time.
        exits: The exits of attempts that ended by themselves: exit code, or minus the signal.
        saved_s: Seconds of work in the checkpoint of each job that saves any; its first task writes it.
        unsaved: Attempts of these jobs that were ended without a checkpoint.
        notices: The reasons in the notices of attempts.
        told: Attempts whose process was asked to end, so that an exit code of 0 is not a success.
    """

    now: Callable[[], float]
    running: dict[AttemptId, Running] = field(default_factory=dict)
    by_task: dict[TaskId, list[Running]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    excused: set[AttemptId] = field(default_factory=set)
    exits: dict[AttemptId, int] = field(default_factory=dict)
    seen: set[AttemptId] = field(default_factory=set)
    told: set[AttemptId] = field(default_factory=set)
    saved_s: dict[JobId, float] = field(default_factory=dict)
    unsaved: list[AttemptId] = field(default_factory=list)
    notices: dict[AttemptId, str] = field(default_factory=dict)
    starts: int = 0
    overlaps: int = 0

    def start(self, attempt_id: AttemptId, host: str, capacity: Resources, spec: JobSpec) -> Running:
        """Start a process. It is a violation if a conflicting process is running."""
        task_id, number = parse_attempt_id(attempt_id)
        job_id, _ = parse_task_id(task_id)
        process = Running(
            attempt_id, task_id, job_id, number, host, spec.resources, is_gang(spec), spec.exclusive, self.now()
        )
        self.starts += 1
        if attempt_id in self.seen:
            self._violate(f"{attempt_id} ran twice, now on {host}")
        self.seen.add(attempt_id)
        for other in self.by_task.get(task_id, ()):
            self._meet(process, other, "the same task")
        for other in self.running.values():
            if process.is_gang and other.job_id == job_id and other.number != number:
                self._meet(process, other, "an earlier round of its gang")
            if process.is_gang and other.is_gang and other.host == host and other.job_id != job_id:
                self._meet(process, other, "another gang on its host")
        self.running[attempt_id] = process
        self.by_task.setdefault(task_id, []).append(process)
        self._weigh(host, capacity)
        return process

    def tell(self, attempt_id: AttemptId, notice: str) -> None:
        """Record that an attempt was asked to end, and the reason in its notice; empty for none."""
        self.told.add(attempt_id)
        if notice:
            self.notices.setdefault(attempt_id, notice)

    def save(self, process: Running) -> None:
        """Record that a process has saved its checkpoint."""
        if process.task_id.endswith("/0"):
            self.saved_s[process.job_id] = self.saved_s.get(process.job_id, 0) + self.now() - process.started_s

    def judge_notices(self) -> Iterator[str]:
        """Yield the broken promises of a story in which every preemption is announced."""
        for name in self.unsaved:
            yield f"{name} lost its checkpoint: it was ended without a notice, or before its deadline"
        for name, reason in self.notices.items():
            job_id, number = parse_task_id(parse_attempt_id(name)[0])[0], parse_attempt_id(name)[1]
            first = self.notices.get(AttemptId(f"{job_id}/0:{number}"))
            if first != reason:
                yield f"{name} had the notice {reason!r}, and the first member of its gang {first!r}"

    def end(self, process: Running, exit: int | None) -> None:
        """Record the end of a process; `exit` is None if it did not end by itself."""
        del self.running[process.attempt_id]
        self.by_task[process.task_id].remove(process)
        if exit is not None:
            self.exits[process.attempt_id] = exit

    def _meet(self, process: Running, other: Running, what: str) -> None:
        is_excused = {process.attempt_id, other.attempt_id} & self.excused
        if is_excused and not (process.is_exclusive and other.is_exclusive):
            self.overlaps += 1
            return
        self._violate(
            f"{process.attempt_id} began on {process.host} while {other.attempt_id} ({what}) ran on {other.host}"
        )

    def _weigh(self, host: str, capacity: Resources) -> None:
        here = [process for process in self.running.values() if process.host == host]
        held = Resources()
        for process in here:
            need = process.resources
            held = held.add(Resources(0 if process.has_lent else need.cpu_millis, need.memory_bytes, 0, need.device))
        if not held.fits(capacity):
            names = ", ".join(process.attempt_id for process in here)
            self._violate(f"{host} holds {held} of {capacity}: {names}")

    def _violate(self, what: str) -> None:
        self.violations.append(what)
