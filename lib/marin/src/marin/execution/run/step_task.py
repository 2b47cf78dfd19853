"""Tasks of a run, their results, and the protocol of task sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from marin.execution.config.tries import ONCE, Tries
from marin.execution.lease.status_file import PreviousTaskFailedError, check_status
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.report.events import AttemptUse, StepEnd, describe_error
from marin.execution.report.progress import StepProgress, Use
from marin.execution.version.differences import Difference
from rigging.errors import StepFailed


@dataclass(frozen=True, slots=True)
class StepTask:
    """An output to make.

    Attributes:
        name: The step's name.
        output_path: Its output path, which identifies the task.
        dependencies: Output paths that must exist first. Paths outside of this run are not checked.
        work: Makes the output. Returns the content of `.artifact` to store with its status; None for none.
        info: Returns the content of its `.executor_info`, written before `work` while the lease is held; None for none.
        in_process: Whether `work` runs the function itself instead of waiting for a job.
        is_fresh: Whether there was no status a moment ago, which saves a request on object stores.
        was_running: Whether the status was that of an unfinished attempt, whose run may have been killed.
        stop: Stops the job of `work`; called if the lease is lost meanwhile.
        tries: Its retries and timeout. For a job, `work` enforces the timeout.
        has_ended: After a failure, waits for leftovers of `work`. Returns False if some may still run.
        take_log: Returns the location of the work's log, called once at its end; None for this process's log.
        differences: Differences between the existing output's record and the current step.
        prepare: Called before each attempt takes the lease. An error fails the step.
        compare: Returns the differences for an output that another run has made meanwhile. An error refuses the output.
    """

    name: str
    output_path: str
    dependencies: frozenset[str]
    work: Callable[[], bytes | None]
    info: Callable[[], bytes] | None = None
    in_process: bool = True
    is_fresh: bool = False
    was_running: bool = False
    stop: Callable[[], None] = lambda: None
    tries: Tries = ONCE
    has_ended: Callable[[], bool] = lambda: True
    take_log: Callable[[], str | None] = lambda: None
    differences: Sequence[Difference] = ()
    prepare: Callable[[], None] = lambda: None
    compare: Callable[[], Sequence[Difference]] = lambda: ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one task.

    Attributes:
        task: The task.
        end: Its outcome.
        seconds: The time that its work took.
        error: Its error. For a task that could not start, the dependency's error.
        log: The location of the work's log; None for this process's log.
        differences: For an existing output: unversioned values and code that differ from the task's.
        queued_seconds: The time that its job was queued.
        use: The attempt's resource use, if known.
        earlier: The earlier attempts.
    """

    task: StepTask
    end: StepEnd
    seconds: float = 0.0
    error: BaseException | None = None
    log: str | None = None
    differences: Sequence[Difference] = ()
    queued_seconds: float = 0.0
    use: Use | None = None
    earlier: tuple[AttemptUse, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the output exists."""
        return self.end in (StepEnd.SUCCEEDED, StepEnd.CACHED)


class Run(Protocol):
    """The part of a run that its task source uses."""

    def tell_queued(self, name: str, output_path: str) -> None:
        """Tell observers of a new step of the run."""

    def add(self, items: Iterable[StepTask | StepResult]) -> None:
        """Add ready tasks, and results of tasks that need no work. Callable from any thread."""

    def fail(self, error: BaseException) -> None:
        """End the run with an error. Callable from any thread."""


class TaskSource(Protocol):
    """A source of tasks for a run.

    Attributes:
        is_local: Whether all outputs are known to be local files.
    """

    is_local: bool

    def start(self, run: Run) -> None:
        """Start passing ready tasks to the run, now and from threads of the source."""

    def ended(self, result: StepResult) -> list[StepTask | StepResult]:
        """Record a task's result. Return the tasks that became ready and the results that follow. Callable from any
        thread.
        """

    def is_done(self) -> bool:
        """Return whether all tasks have ended and no more will come."""

    def stop(self) -> None:
        """Stop passing tasks to the run."""


def check_end(task: StepTask, status: str | None, *, force_run_failed: bool) -> StepResult | None:
    """Return the result of a task whose status makes work unnecessary; None otherwise.

    Args:
        task: The task, whose dependencies are done.
        status: The status of its output.
        force_run_failed: Whether to retry steps that failed in an earlier run.
    """
    if status == STATUS_SUCCESS:
        return StepResult(task, StepEnd.CACHED, differences=task.differences)
    try:
        check_status(status, task.name, task.output_path, force_run_failed=force_run_failed)
    except PreviousTaskFailedError as error:
        return StepResult(task, StepEnd.FAILED, error=error)
    return None


def dependency_error(failed: StepResult) -> BaseException:
    """Return the error of a task that cannot start because of a dependency: the original failure."""
    if failed.end is StepEnd.DEP_FAILED and failed.error is not None:
        return failed.error
    task = failed.task
    return StepFailed(f"dependency {task.name} failed ({task.output_path}): {describe_error(failed.error)}")


def worked(task: StepTask, end: StepEnd, progress: StepProgress, error: BaseException | None = None) -> StepResult:
    """Return the result of an attempt that had its lease.

    Args:
        task: The step's task.
        end: Its outcome.
        progress: The step's progress.
        error: Its exception; None on success.
    """
    return StepResult(task, end, progress.seconds, error, task.take_log(), (), progress.queued_seconds, progress.use)


def made_by_another(task: StepTask) -> StepResult:
    """Return the result of a task whose output another run has made meanwhile."""
    try:
        return StepResult(task, StepEnd.CACHED, differences=task.compare())
    # What it was made with may be refused, and storage libraries raise in words of their own.
    except Exception as error:
        return StepResult(task, StepEnd.FAILED, error=error)
