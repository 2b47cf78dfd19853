"""Tasks of a run, their results, and the protocol of their sources."""

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
    """One output to make.

    Attributes:
        name: The step's name.
        output_path: Where its output goes; identifies the task.
        dependencies: Output paths that must exist first; those that are not tasks of this run are not checked.
        work: Makes the output; returns the content of `.artifact` that is to be stored with its status, None for none.
        info: Returns the content of its `.executor_info`, written before `work`, with the lease held; None for none.
        in_process: Whether `work` runs the function itself, instead of waiting for a job.
        is_fresh: There was no status a moment ago; saves a request where reading costs one.
        was_running: There was one of an attempt that had not ended; its run may have been killed.
        stop: Called when the lease is lost while `work` runs: stops its job.
        tries: How often it is tried, and for how long; the time of a job is kept by `work`.
        has_ended: After a failure, waits for the end of what `work` has begun; False if that may still run.
        take_log: Returns where the work's log can be read, called once at its end; None for this process's log.
        differences: Differences between what made the existing output and what would make it now.
        compare: Returns the same for an output that another run has made meanwhile; may refuse it by an error.
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
    compare: Callable[[], Sequence[Difference]] = lambda: ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one task.

    Attributes:
        task: The task.
        end: How it ended.
        seconds: How long its work took.
        error: Why it failed; for a task that could not start, the error of the dependency.
        log: Where the work's log can be read; None for this process's log.
        differences: For an existing output: unversioned values and code in which it differs from the task.
        queued_seconds: How long its job was queued.
        use: What the attempt used, if it is known.
        earlier: The attempts before.
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
        """Whether the output is there."""
        return self.end in (StepEnd.SUCCEEDED, StepEnd.CACHED)


class Run(Protocol):
    """The run, as its source of tasks uses it."""

    def tell_queued(self, name: str, output_path: str) -> None:
        """Tell observers of a new step of the run."""

    def add(self, items: Iterable[StepTask | StepResult]) -> None:
        """Add tasks that are ready, and results of tasks that need no work; from any thread."""

    def fail(self, error: BaseException) -> None:
        """End the run with an error; from any thread."""


class TaskSource(Protocol):
    """A source of tasks for a run.

    Attributes:
        is_local: Whether all outputs are known to be local files.
    """

    is_local: bool

    def start(self, run: Run) -> None:
        """Begin to give the run ready tasks, now and from threads of the source."""

    def ended(self, result: StepResult) -> list[StepTask | StepResult]:
        """Note a task's result; return the tasks that became ready and the results that follow; from any thread."""

    def is_done(self) -> bool:
        """True if everything has ended and nothing more will come."""

    def stop(self) -> None:
        """Give the run no more tasks."""


def check_end(task: StepTask, status: str | None, *, force_run_failed: bool) -> StepResult | None:
    """Return the result of a task that needs no work because of the status of its output; None when it does.

    Args:
        task: The task; its dependencies are done.
        status: The status of its output.
        force_run_failed: Whether steps that failed in an earlier run are tried again.
    """
    if status == STATUS_SUCCESS:
        return StepResult(task, StepEnd.CACHED, differences=task.differences)
    try:
        check_status(status, task.name, task.output_path, force_run_failed=force_run_failed)
    except PreviousTaskFailedError as error:
        return StepResult(task, StepEnd.FAILED, error=error)
    return None


def dependency_error(failed: StepResult) -> BaseException:
    """Return the error of a task that cannot start because of a dependency: the first failure on the way to it."""
    if failed.end is StepEnd.DEP_FAILED and failed.error is not None:
        return failed.error
    task = failed.task
    return StepFailed(f"dependency {task.name} failed ({task.output_path}): {describe_error(failed.error)}")


def worked(task: StepTask, end: StepEnd, progress: StepProgress, error: BaseException | None = None) -> StepResult:
    """Return the result of an attempt that had its lease.

    Args:
        task: The step's.
        end: How it ended.
        progress: How far it came.
        error: What it raised; None: nothing.
    """
    return StepResult(task, end, progress.seconds, error, task.take_log(), (), progress.queued_seconds, progress.use)


def made_by_another(task: StepTask) -> StepResult:
    """Return the result of a task whose output another run has made meanwhile."""
    try:
        return StepResult(task, StepEnd.CACHED, differences=task.compare())
    # What it was made with may be refused, and storage libraries raise in words of their own.
    except Exception as error:
        return StepResult(task, StepEnd.FAILED, error=error)
