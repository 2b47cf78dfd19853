"""Events of a run: the interface between the runner and everything that shows or records a run."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from rigging.errors import DeadlineExceeded, StepFailed
from rigging.redaction import redact_string
from rigging.text.printable import text_of

logger = logging.getLogger(__name__)

FURTHER_LINES: Final = " " * 6
"""Prefix of the further lines of a step's error in the table of `StepFailed`."""


class StepTimedOut(StepFailed, DeadlineExceeded):
    """A step's function ran longer than the step's `timeout`.

    Args:
        message: The message.
        still_runs: Whether the function still runs.
    """

    def __init__(self, message: str, *, still_runs: bool = False) -> None:
        super().__init__(message)
        self.still_runs = still_runs


class StepEnd(StrEnum):
    """The outcome of a step in a run."""

    CACHED = "cached"
    """Its output already existed, or another run made it meanwhile."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Its function failed, or it failed in an earlier run and is not retried."""
    DEP_FAILED = "dep_failed"
    """It was not started, because a dependency failed."""
    LOST = "lost"
    """Its lease was lost while it ran, so that its output does not count."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run started.

    Attributes:
        time: The time, in seconds since the epoch.
        steps: The number of its steps; None if unknown in advance.
        description: The experiment's purpose.
        info_path: The run's info file, or None.
        code: Records the run's code and returns the part for the event log; as slow as git.
    """

    time: float
    steps: int | None
    description: str | None = None
    info_path: str | None = None
    code: Callable[[], Mapping[str, Any]] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StepQueued:
    """A step waits for its dependencies or for its turn. This is every step's first event, sent once."""

    time: float
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class StepJobQueued:
    """A step's job is submitted but not running. Repeated when the reason changes. The step's lease is held.

    Attributes:
        time: The time, in seconds since the epoch.
        name: The step's name.
        path: Its output path.
        reason: Why it is pending, according to its cluster; "" if unknown.
    """

    time: float
    name: str
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step's function starts. Its lease is held and its status is RUNNING."""

    time: float
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class StepProgressed:
    """A step's function reported its progress (`marin.execution.progress`), at most about once a second.

    Attributes:
        time: The time, in seconds since the epoch.
        name: The step's name.
        path: Its output path.
        done: The amount done.
        total: The total amount, in the same units.
    """

    time: float
    name: str
    path: str
    done: float
    total: float


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """One attempt of a step, and its resource use.

    Attributes:
        outcome: How it ended: `succeeded`, `failed`, `timed out`, `preempted`, `lost its lease` or `was stopped`.
        seconds: The running time of its function.
        queued_seconds: The time that its job was queued.
        cpu_seconds: Processor time, as in `marin.execution.report.progress.Use`; None if unknown.
        peak_bytes: Peak memory, likewise.
        error: Its error; None on success.
    """

    outcome: str
    seconds: float
    queued_seconds: float = 0.0
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StepRetrying:
    """An attempt of a step ended without an output, and another will follow.

    Attributes:
        time: The time, in seconds since the epoch.
        name: The step's name.
        path: Its output path.
        attempt: The number of the ended attempt, from 1.
        outcome: The outcome, in words.
        error: Its error.
        delay: Seconds until the next attempt.
        seconds: The running time of the attempt's function.
    """

    time: float
    name: str
    path: str
    attempt: int
    outcome: str
    error: str
    delay: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step ended. Sent once for each queued step, unless the run is interrupted.

    Attributes:
        time: The time, in seconds since the epoch.
        name: The step's name.
        path: Its output path, which identifies the step in the run.
        status: How it ended.
        seconds: The running time of its function.
        error: Its error (for DEP_FAILED: the dependency's error); None on success.
        log: The location of its log; None if it is in this process's log.
        differences: For CACHED: unversioned values and code of this run that differ from the output's record.
        queued_seconds: The time that its job was queued.
        attempts: The attempts in this run, in order; empty for steps that were not started.
    """

    time: float
    name: str
    path: str
    status: StepEnd
    seconds: float = 0.0
    error: str | None = None
    log: str | None = None
    differences: tuple[str, ...] = ()
    queued_seconds: float = 0.0
    attempts: tuple[AttemptUse, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run ended: all steps have ended, or it was interrupted, or it failed itself.

    Attributes:
        time: The time, in seconds since the epoch.
        seconds: The duration of the run.
        error: The error that ended it early; None if all steps have ended, including failed ones.
    """

    time: float
    seconds: float
    error: str | None = None


RunEvent = RunStarted | StepQueued | StepJobQueued | StepStarted | StepProgressed | StepRetrying | StepEnded | RunEnded


class RunObserver(Protocol):
    """Receives every event of a run. Several of the run's threads call it concurrently."""

    def on_event(self, event: RunEvent) -> None:
        """Handle an event. Return quickly, because the run waits."""


def notify(observers: Sequence[RunObserver], event: RunEvent) -> None:
    """Pass an event to every observer. A failing observer is logged and never ends the run."""
    for observer in observers:
        try:
            observer.on_event(event)
        except Exception:  # an observer may raise anything
            logger.warning("a run's observer %s failed on %r", type(observer).__name__, event, exc_info=True)


@contextlib.contextmanager
def told_run(
    observers: Sequence[RunObserver],
    steps: int | None,
    description: str | None = None,
    info_path: str | None = None,
    code: Callable[[], Mapping[str, Any]] | None = None,
) -> Iterator[None]:
    """Context manager: notify observers of the run's start and end. The arguments are those of `RunStarted`."""
    started = time.monotonic()
    notify(observers, RunStarted(time.time(), steps, description, info_path, code))
    error: str | None = None
    try:
        yield
    except BaseException as caught:
        error = describe_error(caught)
        raise
    finally:
        notify(observers, RunEnded(time.time(), time.monotonic() - started, error))


def describe_error(error: BaseException | None) -> str:
    """Return the start of an error's first line: its type and message, redacted because it is shown and stored."""
    if error is None:
        return "unknown error"
    text = redact_string(text_of(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
