"""Prefilling in the controller's state: which tasks may be prefilled, and how long those of a kind run.

A prefilled attempt is assigned to a full worker: it holds nothing until it begins there (`Booking.prefilled`).
`iris.sched.prefill` decides how many a worker gets, and the worker's `iris.worker.attempts.prefill` which one begins.
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
"""Expected run time of the next attempt after one was handed back: a dozen short runs correct it."""
_UP: Final = 0.5
_DOWN: Final = 0.1


def may_be_prefilled(spec: JobSpec) -> bool:
    """Return whether the job's tasks may be prefilled: nothing about them depends on their exact start."""
    plain = spec.resources.accelerator is None and not spec.ports and not is_gang(spec)
    return plain and not spec.exclusive and not spec.scheduling_timeout_ms


def check_prefill(event: Assigned, spec: JobSpec, load: WorkerLoad) -> None:
    """Raise Conflict if the task must not be prefilled on that worker."""
    why = ""
    if not may_be_prefilled(spec):
        why = f"{spec.job_id} is no job of plain tasks"
    elif load.lenders:
        why = "an attempt there lends its cpu"
    if why:
        raise Conflict(f"task {event.task_id} cannot be prefilled on worker {event.worker_id}: {why}")


class RunTimes:
    """The expected run time of each kind of attempt, from recent ends. It rises immediately and falls slowly. Not
    stored.
    """

    __slots__ = ("_expected",)

    def __init__(self) -> None:
        self._expected: dict[Kind, float] = {}

    def note(self, task: Task, booking: Booking) -> None:
        """Record an attempt's end, given the resulting task. Only ends by themselves show how long attempts run."""
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
        """Record that a prefilled attempt did not start in time: those before it took longer than expected."""
        self._keep(kind, max(_SLOW_MS, self._expected.get(kind, 0.0)))

    def expected_ms(self, kind: Kind) -> float | None:
        """Return the expected run time of an attempt of the kind; None if none has ended lately."""
        return self._expected.get(kind)

    def _keep(self, kind: Kind, expected_ms: float) -> None:
        if kind not in self._expected and len(self._expected) >= _KINDS_KEPT:
            del self._expected[next(iter(self._expected))]
        self._expected[kind] = expected_ms
