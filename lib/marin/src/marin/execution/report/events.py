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
"""Beginning of the further lines of a step's error in the table of `StepFailed`."""


class StepTimedOut(StepFailed, DeadlineExceeded):
    """The function of a step ran longer than the step's `timeout`.

    Args:
        message: The message.
        still_runs: The function goes on all the same.
    """

    def __init__(self, message: str, *, still_runs: bool = False) -> None:
        super().__init__(message)
        self.still_runs = still_runs


class StepEnd(StrEnum):
    """How a step ended in a run."""

    CACHED = "cached"
    """Its output was there already, or another run made it meanwhile."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Its function failed, or it failed in an earlier run and is not to be tried again."""
    DEP_FAILED = "dep_failed"
    """It was not started, because a dependency failed."""
    LOST = "lost"
    """Its lease was lost while it ran, so that its work does not count."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run began.

    Attributes:
        time: When, in seconds since the epoch.
        steps: How many steps it has; None when they are not known beforehand.
        description: The experiment's description, for people.
        info_path: The run's info file; None when there is none.
        code: Records the run's code and returns what an event log has of it; takes as long as git does.
    """

    time: float
    steps: int | None
    description: str | None = None
    info_path: str | None = None
    code: Callable[[], Mapping[str, Any]] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StepQueued:
    """A step waits for its dependencies or for its turn. The first event of every step, sent once."""

    time: float
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class StepJobQueued:
    """A step's job is submitted and does not run yet; comes again when the reason changes. Its lease is held.

    Attributes:
        time: When, in seconds since the epoch.
        name: The step's name.
        path: Its output path.
        reason: Why it waits, according to its cluster; "" when that is not known.
    """

    time: float
    name: str
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step's function starts; its lease is held and its status is RUNNING."""

    time: float
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class StepProgressed:
    """A step's function has told how far it is (`marin.execution.progress`); about once a second at most.

    Attributes:
        time: When, in seconds since the epoch.
        name: The step's name.
        path: Its output path.
        done: How much is done.
        total: How much there is to do, in the same units.
    """

    time: float
    name: str
    path: str
    done: float
    total: float


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """One attempt at a step, and what it used.

    Attributes:
        outcome: How it ended: `succeeded`, `failed`, `timed out`, `preempted`, `lost its lease` or `was stopped`.
        seconds: How long its function ran.
        queued_seconds: How long its job was queued.
        cpu_seconds: Processor time, as `marin.execution.report.progress.Use` says; None where it is not known.
        peak_bytes: Memory at most, likewise.
        error: Why it failed; None when it did not.
    """

    outcome: str
    seconds: float
    queued_seconds: float = 0.0
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StepRetrying:
    """An attempt at a step ended without an output, and there will be another one.

    Attributes:
        time: When, in seconds since the epoch.
        name: The step's name.
        path: Its output path.
        attempt: The number of the attempt that ended, from 1.
        outcome: How it ended, in words.
        error: Why.
        delay: Seconds until the next attempt.
        seconds: How long the function of this attempt ran.
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
        time: When, in seconds since the epoch.
        name: The step's name.
        path: Its output path; identifies the step in the run.
        status: How it ended.
        seconds: How long its function took.
        error: Why it failed (for DEP_FAILED: the dependency's error); None when it did not.
        log: Where its log can be read; None when it is in this process's log.
        differences: For CACHED: unversioned values and code of this run that differ from those that made the output.
        queued_seconds: How long its job was queued.
        attempts: The attempts of this run, the last one last; none for steps that were not begun.
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
    """The run ended: all steps have ended, or it was interrupted, or failed itself.

    Attributes:
        time: When, in seconds since the epoch.
        seconds: How long it took.
        error: What ended it early; None when all of its steps have ended, failed ones included.
    """

    time: float
    seconds: float
    error: str | None = None


RunEvent = RunStarted | StepQueued | StepJobQueued | StepStarted | StepProgressed | StepRetrying | StepEnded | RunEnded


class RunObserver(Protocol):
    """Sees every event of a run. Called by the run's threads, several at a time."""

    def on_event(self, event: RunEvent) -> None:
        """Handle an event. Must be quick: the run waits for it."""


def notify(observers: Sequence[RunObserver], event: RunEvent) -> None:
    """Give an event to every observer. An observer that fails is logged and never ends the run."""
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
    """Tell observers that a run begins with the block and ends with it; the arguments are those of `RunStarted`."""
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
    """An error in one line's beginning: its type and its words, without secrets: both shown and stored."""
    if error is None:
        return "unknown error"
    text = redact_string(text_of(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
