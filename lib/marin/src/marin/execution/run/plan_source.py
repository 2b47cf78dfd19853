"""The tasks of a plan as a source of work, all known from the start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.report.events import StepEnd
from marin.execution.run.dependencies import Dependencies
from marin.execution.run.runner import StepRun
from marin.execution.run.step_task import Run, StepResult, StepTask, check_end, dependency_error


class PlanSource:
    """A set of tasks. Each is passed to the run when its dependencies have ended.

    Args:
        tasks: The tasks in any order, without cycles.
        statuses: The status of each output path at the start.
        force_run_failed: Whether to retry steps that failed in an earlier run.
    """

    def __init__(
        self, tasks: Sequence[StepTask], statuses: Mapping[str, str | None], *, force_run_failed: bool = True
    ) -> None:
        self._tasks = {task.output_path: task for task in tasks}
        self._statuses = statuses
        self._force_run_failed = force_run_failed
        self.is_local = not any("://" in path for path in self._tasks)
        self._guard = threading.Lock()
        self._dependencies = Dependencies()
        self._results: dict[str, StepResult] = {}

    @property
    def results(self) -> list[StepResult]:
        """Return the results of the ended tasks, in task order."""
        return [self._results[path] for path in self._tasks if path in self._results]

    def start(self, run: Run) -> None:
        """Pass the tasks without dependencies to the run."""
        for path, task in self._tasks.items():
            self._dependencies.add(path)
            run.tell_queued(task.name, path)
        waiting = {path for path, task in self._tasks.items() if self._dependencies.wait(path, task.dependencies)}
        run.add([self._next(task) for path, task in self._tasks.items() if path not in waiting])

    def ended(self, result: StepResult) -> list[StepTask | StepResult]:
        """Record the result of a task, and return the tasks that became ready."""
        path = result.task.output_path
        with self._guard:
            self._results[path] = result
            free = self._dependencies.end(path)
        return [self._next(self._tasks[path]) for path in free]

    def is_done(self) -> bool:
        """Return whether every task has ended."""
        return len(self._results) == len(self._tasks)

    def stop(self) -> None:
        """Do nothing: a plan has no thread that passes tasks."""

    def _next(self, task: StepTask) -> StepTask | StepResult:
        """Return a task whose dependencies have ended, or its result if it needs no work."""
        status = self._statuses.get(task.output_path)
        if status != STATUS_SUCCESS:
            for path in task.dependencies:
                result = self._results.get(path)
                if result is not None and not result.ok:
                    return StepResult(task, StepEnd.DEP_FAILED, error=dependency_error(result))
        return check_end(task, status, force_run_failed=self._force_run_failed) or task


def run_tasks(
    tasks: Sequence[StepTask],
    statuses: Mapping[str, str | None],
    *,
    force_run_failed: bool = True,
    on_end: Callable[[list[StepResult]], None] = lambda _: None,
    **options: Any,
) -> list[StepResult]:
    """Run every task whose output does not exist, and return the results, in task order.

    Args:
        tasks: The tasks in any order, without cycles.
        statuses: The status of each output path at the start.
        force_run_failed: Whether to retry steps that failed in an earlier run.
        on_end: Called with the results of the ended tasks when the run is over, interrupted or not.
        options: The options of `StepRun`.
    """
    source = PlanSource(tasks, statuses, force_run_failed=force_run_failed)
    try:
        StepRun(source, force_run_failed=force_run_failed, **options).run()
    finally:
        on_end(source.results)
    return source.results
