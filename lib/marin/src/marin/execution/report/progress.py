"""The progress of one attempt at a step: queued as a job, or running, and the time spent in each state."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable

from marin.execution.report.events import RunEvent, StepJobQueued, StepStarted


class StepProgress:
    """Reports the states of an attempt as events, and measures their time.

    Args:
        name: The step's name.
        path: Its output path.
        tell: Called with each event.
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
        """Report that the step's job is queued, because of `reason` ("" when that is not known)."""
        self._queued_until = time.monotonic()
        if reason != self._reason:
            self._reason = reason
            self._tell(StepJobQueued(time.time(), self._name, self._path, reason))

    def started(self, *, ended: bool = False) -> None:
        """Report that the step's function runs; with `ended`, that it ran since the job was last seen queued."""
        if self._started is None:
            now = time.monotonic()
            self._started = self._queued_until if ended and self._queued_until is not None else now
            self._tell(StepStarted(time.time() - (now - self._started), self._name, self._path))

    @property
    def seconds(self) -> float:
        """How long the function has run."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    @property
    def queued_seconds(self) -> float:
        """How long the step's job was queued."""
        if self._queued_until is None:
            return 0.0
        return (self._queued_until if self._started is None else self._started) - self._began


_NO_PROGRESS = StepProgress("(none)", "", lambda _: None)
_current: contextvars.ContextVar[StepProgress | None] = contextvars.ContextVar("marin_step_progress", default=None)


def step_progress() -> StepProgress:
    """Return the progress of the step that is running in this context; outside of any step, one without effect."""
    return _current.get() or _NO_PROGRESS


def set_step_progress(progress: StepProgress) -> None:
    """Make `step_progress()` return `progress` in this context."""
    _current.set(progress)
