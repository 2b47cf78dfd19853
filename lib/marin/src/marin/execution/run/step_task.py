"""What a run is given to do, what became of it, and where a run gets it from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from marin.execution.lease.status_file import PreviousTaskFailedError, check_status
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.report.events import StepEnd, describe_error
from marin.execution.report.progress import StepProgress
from marin.execution.version.differences import Difference
from rigging.errors import StepFailed


@dataclass(frozen=True, slots=True)
class StepTask:
    """One output to make.

    Attributes:
        name: The step's name.
        output_path: Where its output goes; identifies the task.
        dependencies: Output paths that must be there first; those that are not tasks of this run are taken as there.
        work: Makes the output.
        info: Gives the content of its `.executor_info`, written before `work`, with the lease held; None for none.
        in_process: Whether `work` runs the function itself, and does not wait for a job.
        is_fresh: There was no status a moment ago; saves a request where reading costs one.
        stop: Called when the lease is lost while `work` is on: stops what runs outside this process.
        take_log: Where the work's own log can be read, asked once when it has ended; None for this process's log.
        differences: What made the output that is there, where it is not what would make it now.
        compare: The same of an output that another run has made meanwhile; may refuse it by an error.
    """

    name: str
    output_path: str
    dependencies: frozenset[str]
    work: Callable[[], Any]
    info: Callable[[], bytes] | None = None
    in_process: bool = True
    is_fresh: bool = False
    stop: Callable[[], None] = lambda: None
    take_log: Callable[[], str | None] = lambda: None
    differences: Sequence[Difference] = ()
    compare: Callable[[], Sequence[Difference]] = lambda: ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of one task.

    Attributes:
        task: The task.
        end: How it ended.
        seconds: How long its work took.
        error: Why it failed; for a task that could not start, the error of the dependency.
        log: Where the work's own log can be read; None for this process's log.
        differences: Of an output that was there: unversioned values and code that made it and differ from the task's.
        queued_seconds: How long its job waited before its work began.
    """

    task: StepTask
    end: StepEnd
    seconds: float = 0.0
    error: BaseException | None = None
    log: str | None = None
    differences: Sequence[Difference] = ()
    queued_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the output is there."""
        return self.end in (StepEnd.SUCCEEDED, StepEnd.CACHED)


class Run(Protocol):
    """What a source needs of the run that it feeds."""

    def tell_queued(self, name: str, output_path: str) -> None:
        """Tell observers of a step that the run has from now on."""

    def add(self, items: Iterable[StepTask | StepResult]) -> None:
        """Take in tasks that are ready, and results of tasks that need no work; from any thread."""

    def fail(self, error: BaseException) -> None:
        """End the run with an error; from any thread."""


class TaskSource(Protocol):
    """Where a run gets its tasks from.

    Attributes:
        is_local: Whether all outputs are known to be local files.
    """

    is_local: bool

    def start(self, run: Run) -> None:
        """Begin to give the run what is ready, now and from threads of the source."""

    def ended(self, result: StepResult) -> list[StepTask | StepResult]:
        """Note how a task ended, and return what is ready, or has ended, because of it; from any thread."""

    def is_done(self) -> bool:
        """Whether everything has ended and nothing more will come."""

    def stop(self) -> None:
        """Give the run nothing more."""


def check_end(task: StepTask, status: str | None, *, force_run_failed: bool) -> StepResult | None:
    """The result of a task that needs no work because of the status of its output; None when it does.

    Args:
        task: The task; its dependencies are done.
        status: The status of its output.
        force_run_failed: Whether what failed in an earlier run is tried again.
    """
    if status == STATUS_SUCCESS:
        return StepResult(task, StepEnd.CACHED, differences=task.differences)
    try:
        check_status(status, task.name, task.output_path, force_run_failed=force_run_failed)
    except PreviousTaskFailedError as error:
        return StepResult(task, StepEnd.FAILED, error=error)
    return None


def dependency_error(failed: StepResult) -> BaseException:
    """The error of a task that cannot start because of a dependency: the first failure on the way to it."""
    if failed.end is StepEnd.DEP_FAILED and failed.error is not None:
        return failed.error
    task = failed.task
    return StepFailed(f"dependency {task.name} failed ({task.output_path}): {describe_error(failed.error)}")


def worked(task: StepTask, end: StepEnd, progress: StepProgress, error: BaseException | None = None) -> StepResult:
    """The result of an attempt that had its lease."""
    return StepResult(task, end, progress.seconds, error, task.take_log(), (), progress.queued_seconds)


def made_by_another(task: StepTask) -> StepResult:
    """The result of a task whose output another run has made meanwhile."""
    try:
        return StepResult(task, StepEnd.CACHED, differences=task.compare())
    # What it was made with may be refused, and storage libraries raise in words of their own.
    except Exception as error:
        return StepResult(task, StepEnd.FAILED, error=error)
