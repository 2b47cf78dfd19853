"""Running steps: each as soon as its dependencies are done, every completion an event, failures collected."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import Any

from marin.execution.executor_step_status import (
    STATUS_FAILED,
    STATUS_RUNNING,
    STATUS_SUCCESS,
    LockedStatus,
    PreviousTaskFailedError,
    StepAlreadyDone,
    check_status,
    mark_dependency_failed,
    step_lock,
)
from rigging.errors import InvalidRequest

logger = logging.getLogger(__name__)

# Steps that run in this process have a thread each. A thread is cheap, but a process may have only so many.
MAX_STEP_THREADS = 800


class Outcome(StrEnum):
    """How a run left a step."""

    RAN = "ran"
    ALREADY_DONE = "already done"
    FAILED = "failed"
    DEPENDENCY_FAILED = "not run: a dependency failed"


@dataclass(frozen=True, slots=True)
class StepTask:
    """One output to make.

    Attributes:
        name: The step's name.
        output_path: Where its output goes; identifies the task.
        dependencies: Output paths that must be there first; those that are not tasks of this run are taken as there.
        work: Makes the output.
        prepare: Called before `work`, with the lock held: writes the step's info.
    """

    name: str
    output_path: str
    dependencies: frozenset[str]
    work: Callable[[], Any]
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of one task.

    Attributes:
        task: The task.
        outcome: How it ended.
        seconds: How long its work took.
        error: Why it failed; for a task that could not start, the error of the dependency.
    """

    task: StepTask
    outcome: Outcome
    seconds: float = 0.0
    error: BaseException | None = None

    @property
    def ok(self) -> bool:
        """Whether the output is there."""
        return self.outcome in (Outcome.RAN, Outcome.ALREADY_DONE)


def check_max_concurrent(max_concurrent: int | None) -> None:
    """Refuse a limit that would let nothing run.

    Raises:
        InvalidRequest: it is below 1.
    """
    if max_concurrent is not None and max_concurrent < 1:
        raise InvalidRequest(f"max_concurrent={max_concurrent}: must be at least 1, or None for no limit")


class StepRun:
    """One run over a set of tasks; used once.

    Args:
        tasks: The tasks, any order, no cycles.
        statuses: Status of each output path at the start.
        force_run_failed: Whether what failed in an earlier run is tried again.
        max_concurrent: Tasks at work at once; None for every ready one (up to `MAX_STEP_THREADS`).
        stop_work: Called on an interrupt, before any lock is given up: stops what runs outside this process.
    """

    def __init__(
        self,
        tasks: Sequence[StepTask],
        statuses: Mapping[str, str | None],
        *,
        force_run_failed: bool = True,
        max_concurrent: int | None = None,
        stop_work: Callable[[], None] = lambda: None,
    ) -> None:
        check_max_concurrent(max_concurrent)
        self._tasks = {task.output_path: task for task in tasks}
        self._statuses = statuses
        self._force_run_failed = force_run_failed
        self._limit = min(max_concurrent or MAX_STEP_THREADS, MAX_STEP_THREADS)
        self._stop_work = stop_work
        self._results: dict[str, StepResult] = {}
        self._completions: SimpleQueue[StepResult] = SimpleQueue()
        self._work: SimpleQueue[tuple[StepTask, contextvars.Context] | None] = SimpleQueue()
        self._threads = 0
        self._active_guard = threading.Lock()
        self._active: dict[str, LockedStatus] = {}

    def run(self) -> list[StepResult]:
        """Run every task whose output is not there, and return the results in the order of the tasks.

        An interrupt of this thread (Ctrl-C, SystemExit from a signal handler) leaves the status FAILED for what was at
        work, gives its locks up and is raised again; work in this process cannot be stopped and ends with the process.
        """
        waiting_for = {
            path: {dependency for dependency in task.dependencies if dependency in self._tasks}
            for path, task in self._tasks.items()
        }
        dependants: dict[str, list[str]] = {path: [] for path in self._tasks}
        for path, dependencies in waiting_for.items():
            for dependency in dependencies:
                dependants[dependency].append(path)
        ready = deque(path for path, dependencies in waiting_for.items() if not dependencies)
        running = 0
        try:
            while ready or running:
                while ready and running < self._limit:
                    path = ready.popleft()
                    result = self._settled(self._tasks[path])
                    if result is None:
                        self._start(self._tasks[path], running)
                        running += 1
                    else:
                        ready.extend(self._finish(result, waiting_for, dependants))
                if running:
                    result = self._completions.get()
                    running -= 1
                    ready.extend(self._finish(result, waiting_for, dependants))
        except BaseException:
            self._abandon()
            raise
        finally:
            for _ in range(self._threads):
                self._work.put(None)
        return [self._results[path] for path in self._tasks]

    def _settled(self, task: StepTask) -> StepResult | None:
        """The result of a task that needs no work; None when it does."""
        failed = [self._results[path] for path in task.dependencies if path in self._results]
        failed = [result for result in failed if not result.ok]
        try:
            status = self._statuses.get(task.output_path)
            if failed and status != STATUS_SUCCESS:
                return StepResult(task, Outcome.DEPENDENCY_FAILED, error=failed[0].error)
            check_status(status, task.name, task.output_path, force_run_failed=self._force_run_failed)
        except StepAlreadyDone:
            return StepResult(task, Outcome.ALREADY_DONE)
        except PreviousTaskFailedError as error:
            return StepResult(task, Outcome.FAILED, error=error)
        return None

    def _finish(
        self, result: StepResult, waiting_for: dict[str, set[str]], dependants: dict[str, list[str]]
    ) -> list[str]:
        """Book a result and give the tasks that it makes ready."""
        task = result.task
        self._results[task.output_path] = result
        _log_result(result)
        if result.outcome is Outcome.DEPENDENCY_FAILED:
            _mark_dependency_failed(task)
        ready = []
        for path in dependants[task.output_path]:
            waiting_for[path].discard(task.output_path)
            if not waiting_for[path]:
                ready.append(path)
        return ready

    def _start(self, task: StepTask, running: int) -> None:
        if running >= self._threads:
            self._threads += 1
            threading.Thread(target=self._serve, name=f"marin-step-{self._threads}", daemon=True).start()
        # A step inherits what is set around the run: the fray client, budgets.
        self._work.put((task, contextvars.copy_context()))

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            task, context = item
            self._completions.put(context.run(self._attempt, task))

    def _attempt(self, task: StepTask) -> StepResult:
        started = time.monotonic()
        try:
            with step_lock(task.output_path, task.name, force_run_failed=self._force_run_failed) as status:
                with self._active_guard:
                    self._active[task.output_path] = status
                try:
                    started = time.monotonic()
                    _make(task, status)
                finally:
                    with self._active_guard:
                        self._active.pop(task.output_path, None)
        except StepAlreadyDone:
            return StepResult(task, Outcome.ALREADY_DONE)
        # A step may raise anything, SystemExit and KeyboardInterrupt included; all of it is that step's failure.
        except BaseException as error:
            return StepResult(task, Outcome.FAILED, time.monotonic() - started, error)
        return StepResult(task, Outcome.RAN, time.monotonic() - started)

    def _abandon(self) -> None:
        """Tell the truth about what is at work when the run is interrupted."""
        self._stop_work()
        with self._active_guard:
            active = list(self._active.values())
        for status in active:
            logger.warning("interrupted: %s is marked FAILED", status.output_path)
            try:
                status.write_status(STATUS_FAILED)
            except (OSError, RuntimeError) as error:
                logger.warning("could not write the status of %s: %s", status.output_path, error)
            status.held.lost.set()  # the thread that is still at work must not write SUCCESS any more
            status.held.lock.release()


def _make(task: StepTask, status: LockedStatus) -> None:
    """Do a task's work between a true RUNNING and a true SUCCESS or FAILED."""
    status.write_status(STATUS_RUNNING)
    try:
        task.prepare()
        logger.info("step %s: running -> %s", task.name, task.output_path)
        task.work()
    except BaseException:
        # After a lost lock the output is another's to speak about; that error then comes in place of this one.
        status.write_status(STATUS_FAILED)
        raise
    status.write_status(STATUS_SUCCESS)


def _mark_dependency_failed(task: StepTask) -> None:
    try:
        mark_dependency_failed(task.output_path)
    except OSError as error:
        logger.warning("step %s: could not write DEP_FAILED to %s: %s", task.name, task.output_path, error)


def _log_result(result: StepResult) -> None:
    task = result.task
    if result.outcome is Outcome.RAN:
        logger.info("step %s: done in %.2f s -> %s", task.name, result.seconds, task.output_path)
    elif result.outcome is Outcome.ALREADY_DONE:
        logger.info("step %s: already done -> %s", task.name, task.output_path)
    elif result.outcome is Outcome.DEPENDENCY_FAILED:
        logger.error("step %s: not run, because a dependency failed -> %s", task.name, task.output_path)
    else:
        error = result.error
        trace = (type(error), error, error.__traceback__) if error is not None else None
        logger.error("step %s: failed -> %s: %s", task.name, task.output_path, describe_error(error), exc_info=trace)


def describe_error(error: BaseException | None) -> str:
    """An error in one line's beginning: its type and its words."""
    if error is None:
        return "unknown error"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
