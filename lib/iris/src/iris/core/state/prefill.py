"""Prefilling in the controller's state: the tasks that may be prefilled, and the expected run time of each kind.

A prefilled attempt is assigned to a full worker, and holds nothing until it starts (`Booking.prefilled`).
`iris.sched.prefill` decides how many a worker gets; the worker's `iris.worker.attempts.prefill` decides which starts.
"""

from typing import Final

from iris.core.state.booking import Booking, Kind
from iris.core.state.load import WorkerLoad
from iris.domain.entities import Task
from iris.domain.events import Assigned
from iris.domain.job_spec import JobSpec, is_gang
from iris.domain.states import TaskState
from rigging.errors import Conflict

_KINDS_KEPT: Final = 1000
_SLOW_MS: Final = 1000.0
"""Expected run time after an attempt was handed back; a dozen short runs correct it."""
_UP: Final = 0.5
_DOWN: Final = 0.1


def may_be_prefilled(spec: JobSpec) -> bool:
    """Return whether the job's tasks may be prefilled: they do not depend on the exact time of their start."""
    plain = spec.resources.accelerator is None and not spec.ports and not is_gang(spec)
    return plain and not spec.exclusive and not spec.scheduling_timeout_ms


def check_prefill(event: Assigned, spec: JobSpec, load: WorkerLoad) -> None:
    """Raise Conflict if the task must not be prefilled on this worker."""
    why = ""
    if not may_be_prefilled(spec):
        why = f"{spec.job_id} is not a job of plain tasks"
    elif load.lenders:
        why = "an attempt there lends its cpu"
    if why:
        raise Conflict(f"task {event.task_id} cannot be prefilled on worker {event.worker_id}: {why}")


class RunTimes:
    """The expected run time of each kind of attempt, from recent ends. It rises immediately and falls slowly, and is
    not stored.
    """

    __slots__ = ("_expected",)

    def __init__(self) -> None:
        self._expected: dict[Kind, float] = {}

    def note(self, task: Task, booking: Booking) -> None:
        """Record an attempt's end, given the resulting task. Only attempts that end by themselves show the run time."""
        if booking.kind is None:
            return
        if task.state is TaskState.SUCCEEDED or task.state is TaskState.FAILED:
            self.note_end(booking.kind, task.finished_at_ms - task.started_at_ms)
        elif booking.prefilled:
            self.note_slow(booking.kind)

    def note_end(self, kind: Kind, ran_ms: int) -> None:
        """Record that an attempt of the kind ended by itself."""
        known = self._expected.get(kind)
        if known is None:
            self._keep(kind, float(ran_ms))
        else:
            self._expected[kind] = known + (ran_ms - known) * (_UP if ran_ms > known else _DOWN)

    def note_slow(self, kind: Kind) -> None:
        """Record that a prefilled attempt did not start in time, because earlier attempts took longer than expected."""
        self._keep(kind, max(_SLOW_MS, self._expected.get(kind, 0.0)))

    def expected_ms(self, kind: Kind) -> float | None:
        """Return the expected run time of a kind; None without recent ends."""
        return self._expected.get(kind)

    def _keep(self, kind: Kind, expected_ms: float) -> None:
        if kind not in self._expected and len(self._expected) >= _KINDS_KEPT:
            del self._expected[next(iter(self._expected))]
        self._expected[kind] = expected_ms
