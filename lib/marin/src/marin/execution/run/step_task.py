"""What a run is given to do, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from marin.execution.report.events import StepEnd
from marin.execution.report.progress import StepProgress
from marin.execution.version.differences import Difference
from rigging.printable import text_of


class Outcome(StrEnum):
    """How a run left a step."""

    RAN = "ran"
    ALREADY_DONE = "already done"
    FAILED = "failed"
    DEPENDENCY_FAILED = "not run: a dependency failed"
    LOST = "lost its lease"


STEP_ENDS = {
    Outcome.RAN: StepEnd.SUCCEEDED,
    Outcome.ALREADY_DONE: StepEnd.CACHED,
    Outcome.FAILED: StepEnd.FAILED,
    Outcome.DEPENDENCY_FAILED: StepEnd.DEP_FAILED,
    Outcome.LOST: StepEnd.LOST,
}


@dataclass(frozen=True, slots=True)
class StepTask:
    """One output to make.

    Attributes:
        name: The step's name.
        output_path: Where its output goes; identifies the task.
        dependencies: Output paths that must be there first; those that are not tasks of this run are taken as there.
        work: Makes the output.
        info: The content of its `.executor_info`, written before `work`, with the lease held; None for none.
        in_process: Whether `work` runs the function itself, and does not wait for a job.
        stop: Called when the lease is lost while `work` is on: stops what runs outside this process.
        take_log: Where the work's own log can be read, asked once when it has ended; None for this process's log.
        differences: What made the output that is there, where it is not what would make it now.
        compare: The same of an output that another run has made meanwhile; may refuse it by an error.
    """

    name: str
    output_path: str
    dependencies: frozenset[str]
    work: Callable[[], Any]
    info: bytes | None = None
    in_process: bool = True
    stop: Callable[[], None] = lambda: None
    take_log: Callable[[], str | None] = lambda: None
    differences: Sequence[Difference] = ()
    compare: Callable[[], Sequence[Difference]] = lambda: ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of one task.

    Attributes:
        task: The task.
        outcome: How it ended.
        seconds: How long its work took.
        error: Why it failed; for a task that could not start, the error of the dependency.
        log: Where the work's own log can be read; None for this process's log.
        differences: Of an output that was there: unversioned values and code that made it and differ from the task's.
        queued_seconds: How long its job waited before its work began.
    """

    task: StepTask
    outcome: Outcome
    seconds: float = 0.0
    error: BaseException | None = None
    log: str | None = None
    differences: Sequence[Difference] = ()
    queued_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the output is there."""
        return self.outcome in (Outcome.RAN, Outcome.ALREADY_DONE)


def describe_error(error: BaseException | None) -> str:
    """An error in one line's beginning: its type and its words."""
    if error is None:
        return "unknown error"
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def worked(task: StepTask, outcome: Outcome, progress: StepProgress, error: BaseException | None = None) -> StepResult:
    """The result of an attempt that had its lease."""
    return StepResult(task, outcome, progress.seconds, error, task.take_log(), (), progress.queued_seconds)


def made_by_another(task: StepTask) -> StepResult:
    """The result of a task whose output another run has made meanwhile."""
    try:
        return StepResult(task, Outcome.ALREADY_DONE, differences=task.compare())
    # What it was made with may be refused, and storage libraries raise in words of their own.
    except Exception as error:
        return StepResult(task, Outcome.FAILED, error=error)
