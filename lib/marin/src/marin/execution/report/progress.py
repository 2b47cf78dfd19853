"""The state of one attempt of a step: queued or running, progress, and resource use."""

from __future__ import annotations

import contextvars
import math
import os
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from marin.execution.report.events import RunEvent, StepJobQueued, StepProgressed, StepStarted
from rigging.errors import InvalidRequest

# An event at most so often.
_PAUSE_SECONDS: Final = 1.0

LEAST_MEASURED_SECONDS: Final = 0.01
"""Attempts in the run's own process that are shorter have no recorded use."""


@dataclass(frozen=True, slots=True)
class Use:
    """The resource use of an attempt.

    Attributes:
        cpu_seconds: Processor time. For a job: of all its processes. In the run's own process: of its threads and of
            processes that ended meanwhile; if other steps ran at the same time, only of the function's thread.
        peak_bytes: Peak memory. For a job: of its largest process. In the run's own process: of all steps together.
    """

    cpu_seconds: float
    peak_bytes: int


class StepProgress:
    """Report the states of an attempt as events, and measure their time.

    Args:
        name: The step's name.
        path: Its output path.
        tell: Called with each event.
        pause_seconds: Minimum time between two progress reports.

    Attributes:
        use: The attempt's resource use; None while unknown.
        process: The process of the run.
        kept_under: The id of the lease under which the step's job has stored its return value; "" for none.
    """

    def __init__(
        self, name: str, path: str, tell: Callable[[RunEvent], None], pause_seconds: float = _PAUSE_SECONDS
    ) -> None:
        self._name = name
        self._path = path
        self._tell = tell
        self._pause = pause_seconds
        self._due = 0.0
        self._began = time.monotonic()
        self._queued_until: float | None = None
        self._started: float | None = None
        self._reason: str | None = None
        self.use: Use | None = None
        self.process = os.getpid()
        self.kept_under = ""

    def queued(self, reason: str) -> None:
        """Report that the step's job is queued, because of `reason` ("" if unknown)."""
        self._queued_until = time.monotonic()
        if reason != self._reason:
            self._reason = reason
            self._tell(StepJobQueued(time.time(), self._name, self._path, reason))

    def started(self, *, ended: bool = False) -> None:
        """Report that the step's function runs; with `ended`, that it ran after the job was last seen queued."""
        if self._started is None:
            now = time.monotonic()
            self._started = self._queued_until if ended and self._queued_until is not None else now
            self._tell(StepStarted(time.time() - (now - self._started), self._name, self._path))

    def report(self, done: float, total: float) -> None:
        """Report the function's progress, at most once in `pause_seconds` and at completion."""
        now = time.monotonic()
        if now < self._due and done < total:
            return
        self._due = now + self._pause
        self._tell(StepProgressed(time.time(), self._name, self._path, done, total))

    def add_use(self, use: Use) -> None:
        """Add the resource use of the attempt or of a replica."""
        before = self.use or Use(0.0, 0)
        self.use = Use(before.cpu_seconds + use.cpu_seconds, max(before.peak_bytes, use.peak_bytes))

    @property
    def seconds(self) -> float:
        """The running time of the function."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    @property
    def queued_seconds(self) -> float:
        """The time that the step's job was queued."""
        if self._queued_until is None:
            return 0.0
        return (self._queued_until if self._started is None else self._started) - self._began


class Measuring:
    """Context manager: record the resource use of a function in this thread, unless it was very short.

    Args:
        progress: The attempt's progress.
        least_seconds: Shorter functions are not recorded.
    """

    __slots__ = ("_began", "_least", "_measured", "_number", "_process", "_progress", "_thread")

    # A generator with `contextlib.contextmanager` would take a third longer, for each step.
    def __init__(self, progress: StepProgress, least_seconds: float = LEAST_MEASURED_SECONDS) -> None:
        self._progress = progress
        self._least = least_seconds
        self._measured = _MEASURED

    def __enter__(self) -> None:
        self._began, self._thread, self._number = time.monotonic(), time.thread_time(), self._measured.begin()
        self._process = _cpu_of_process() if self._number else 0.0

    def __exit__(self, *_: object) -> None:
        was_alone = self._measured.end(self._number)
        # For a function that does next to nothing, asking would take longer than what is asked about.
        if time.monotonic() - self._began >= self._least:
            peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            cpu = _cpu_of_process() - self._process if was_alone else time.thread_time() - self._thread
            self._progress.add_use(Use(round(cpu, 6), peak))


def _cpu_of_process() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


class _Measured:
    """Records which measured functions ran without others in this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running = self._begun = 0

    def begin(self) -> int:
        """Return a number for `end`."""
        with self._guard:
            self._running += 1
            self._begun += 1
            return self._begun if self._running == 1 else 0

    def end(self, number: int) -> bool:
        """Return whether no other function ran since `begin` returned this number."""
        with self._guard:
            self._running -= 1
            return number == self._begun


_MEASURED: Final = _Measured()
_NO_PROGRESS = StepProgress("(none)", "", lambda _: None)
_current: contextvars.ContextVar[StepProgress | None] = contextvars.ContextVar("marin_step_progress", default=None)
_of_process: StepProgress | None = None


def step_progress() -> StepProgress:
    """Return the progress of the step in this context; outside of steps, an object without effect."""
    return _current.get() or _NO_PROGRESS


def set_step_progress(progress: StepProgress) -> None:
    """Make `step_progress()` return `progress` in this context."""
    _current.set(progress)


def is_in_step() -> bool:
    """Return whether this is the context of a step that runs in the run's own process."""
    here = _current.get()
    return here is not None and here.process == os.getpid()


def set_progress_of_process(taker: StepProgress | None) -> None:
    """Pass `progress()` reports of this process, which runs a single step, to `taker`."""
    global _of_process
    _of_process = taker


def progress(done: float, total: float) -> None:
    """Report the progress of the calling step. It is shown while the step runs, and recorded.

    Call it as often as you like: from any thread of a job, and in the run's process from the function's own thread (or
    a copy of its context). Outside of steps it does nothing.

    Args:
        done: The amount done, in any unit.
        total: The total amount in the same unit; above 0.

    Raises:
        InvalidRequest: `done` is negative, or `total` is not above 0.
    """
    # NaN is neither.
    if not (done >= 0 and total > 0 and math.isfinite(done) and math.isfinite(total)):
        raise InvalidRequest(f"progress(done={done!r}, total={total!r}): done must be at least 0, and total above 0")
    here = _current.get()
    if here is not None and here.process == os.getpid():
        here.report(done, total)
    elif _of_process is not None:
        _of_process.report(done, total)
