"""How far one attempt at a step is: queued as a job, at work; and how long it was in each."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable

from marin.execution.report.events import RunEvent, StepJobQueued, StepStarted


class StepProgress:
    """Tells of an attempt what happens, and counts its time.

    Args:
        name: The step's name.
        path: Its output path.
        tell: Gets the events.
    """

    def __init__(self, name: str, path: str, tell: Callable[[RunEvent], None]) -> None:
        self._name = name
        self._path = path
        self._tell = tell
        self._began = time.monotonic()
        self._queued_until: float | None = None
        self._started: float | None = None
        self._reason: str | None = None

    def queued(self, reason: str) -> None:
        """The step's job waits to be run, because of `reason` ("" when that is not known)."""
        self._queued_until = time.monotonic()
        if reason != self._reason:
            self._reason = reason
            self._tell(StepJobQueued(time.time(), self._name, self._path, reason))

    def started(self, *, ended: bool = False) -> None:
        """The step's function runs; with `ended`, it has run since the step was last seen to be queued."""
        if self._started is None:
            now = time.monotonic()
            self._started = self._queued_until if ended and self._queued_until is not None else now
            self._tell(StepStarted(time.time() - (now - self._started), self._name, self._path))

    @property
    def seconds(self) -> float:
        """For how long the function has run."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    @property
    def queued_seconds(self) -> float:
        """For how long the step's job was queued."""
        if self._queued_until is None:
            return 0.0
        return (self._queued_until if self._started is None else self._started) - self._began


_NO_PROGRESS = StepProgress("(none)", "", lambda _: None)
_current: contextvars.ContextVar[StepProgress | None] = contextvars.ContextVar("marin_step_progress", default=None)


def step_progress() -> StepProgress:
    """The progress of the step whose work this is called in; one that tells nobody outside of any."""
    return _current.get() or _NO_PROGRESS


def set_step_progress(progress: StepProgress) -> None:
    """Make `step_progress()` give this in the present context."""
    _current.set(progress)
