"""Start each step as soon as its dependencies are done. Completions are events; failures are collected."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms
from marin.execution.report.events import RunObserver, StepEnd, StepQueued, notify
from marin.execution.run.attempt import Attempt
from marin.execution.run.children import ticks_now
from marin.execution.run.crew import Workers, check_max_concurrent, most_at_work
from marin.execution.run.interruption import DEFAULT_ENDING, EndingTerms, end_work, names_of
from marin.execution.run.outcomes import ended, note_not_run
from marin.execution.run.step_task import StepResult, StepTask, TaskSource


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Context manager: switch off the cycle collector in all threads of the process.

    Use it for executor code that creates many long-lived objects, never around a step's function. If blocks overlap in
    several threads, the end of the first one ends the pause.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:  # else somebody's frozen objects would not stay so
                # Puts what was made among the old objects: looking through it as if it were new would find nothing, and
                # takes a twelfth of a run whose outputs are all there.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


logger = logging.getLogger(__name__)


class StepRun:
    """A single run of the tasks of a source.

    Args:
        source: Supplies tasks as they become ready.
        force_run_failed: Whether to retry steps that failed in an earlier run.
        max_concurrent: Maximum number of concurrent tasks; None for every ready one (up to `MAX_STEP_THREADS`). Tasks
            that wait for another run's output do not count.
        stop_work: Called on an interrupt, before any lease is released. Stops jobs, and returns whether there were any.
        terms: The timings of leases.
        ending: The time limits for the end of an interrupted run.
        observers: Called with the events of the run.
        on_failure: Called with the result of each step that failed or lost its lease.
        debug: Called with the result of each failed step, in the thread of `run`. No step starts meanwhile.
    """

    def __init__(
        self,
        source: TaskSource,
        *,
        force_run_failed: bool = True,
        max_concurrent: int | None = None,
        stop_work: Callable[[], bool] = lambda: False,
        terms: LeaseTerms = DEFAULT_TERMS,
        ending: EndingTerms = DEFAULT_ENDING,
        observers: Sequence[RunObserver] = (),
        on_failure: Callable[[StepResult], None] = lambda _: None,
        debug: Callable[[StepResult], None] | None = None,
    ) -> None:
        check_max_concurrent(max_concurrent)
        self._source = source
        self._force_run_failed = force_run_failed
        self._stop_work = stop_work
        self._terms = terms
        self._ending = ending
        self._began = ticks_now()
        self._observers = observers
        self._on_failure = on_failure
        self._debug = debug
        self._tell = functools.partial(notify, observers)
        self._keeper = LeaseKeeper(terms, is_local=source.is_local)
        self._context = contextvars.copy_context()
        self._workers = Workers(self._work_on, most_at_work(max_concurrent))

    def run(self) -> None:
        """Run every task whose output does not exist.

        An interrupt of this thread (Ctrl-C, SystemExit from a signal handler) stops jobs and the processes that steps
        have started, notifies functions (`step_lease().lost`), and is raised again. A running step becomes FAILED and
        releases its lease when its function has ended, at the latest with this process.
        """
        try:
            with gc_paused():
                self._source.start(self)
            self._workers.lead(self._source.is_done)
        except BaseException as error:
            self._abandon(by_keyboard=isinstance(error, KeyboardInterrupt))
            raise
        finally:
            self._workers.close()
            self._source.stop()
            self._keeper.stop()

    def tell_queued(self, name: str, output_path: str) -> None:
        """Tell observers of a new step of the run."""
        if self._observers:
            self._tell(StepQueued(time.time(), name, output_path))

    def add(self, items: Iterable[StepTask | StepResult]) -> None:
        """Add ready tasks, and results of tasks that need no work. Callable from any thread."""
        self._settle(items, wakes=True)

    def fail(self, error: BaseException) -> None:
        """End the run with an error. Callable from any thread."""
        self._workers.call(error)

    def _settle(self, items: Iterable[StepTask | StepResult], *, wakes: bool = False) -> None:
        """Record results and their consequences, and pass ready tasks to threads."""
        unsettled = deque(items)
        ready: list[StepTask] = []
        while unsettled:
            item = unsettled.popleft()
            if isinstance(item, StepTask):
                ready.append(item)
            else:
                self._note(item)
                unsettled.extend(self._source.ended(item))
        are_remote = any("://" in task.output_path for task in ready)
        self._workers.add(ready, are_remote=are_remote, wakes=wakes or self._source.is_done())

    def _work_on(self, taken: StepTask | Attempt) -> None:
        """Make a task's output and record the result. If another run is making it, wait in the background."""
        attempt = taken
        if isinstance(attempt, StepTask):
            attempt = Attempt(
                attempt, self._keeper, terms=self._terms, force_run_failed=self._force_run_failed, tell=self._tell
            )
        try:
            result = self._context.copy().run(attempt.run, self._on_begin)
        finally:
            is_waited_for = self._workers.end(attempt)
        if not is_waited_for:
            return
        if result is not None:
            following = attempt.next(result)
            if following is None:
                self._settle([result])
            else:
                self._workers.add_later(*following)
            return
        if taken is not attempt:
            logger.info(
                "step %s: another run is computing %s, waiting for it", attempt.task.name, attempt.task.output_path
            )
        self._keeper.watch(attempt.lease, functools.partial(self._workers.add, [attempt]))

    def _on_begin(self, attempt: Attempt) -> None:
        if not self._workers.begin(attempt):
            attempt.lease.interrupt()

    def _note(self, result: StepResult) -> None:
        """Record a task's result, and tell observers."""
        task = result.task
        if result.end is StepEnd.DEP_FAILED:
            note_not_run(task)
        if self._observers:
            self._tell(ended(result))
        if result.end in (StepEnd.FAILED, StepEnd.LOST) and result.error is not None:
            self._on_failure(result)
            if self._debug is not None and result.end is StepEnd.FAILED:
                self._workers.call(functools.partial(self._debug, result))

    def _abandon(self, *, by_keyboard: bool) -> None:
        """End the running tasks of an interrupted run."""
        self._workers.close()
        working = [attempt.at_work for attempt in self._workers.at_work]
        if working:
            leave = "; Ctrl-C again exits at once" if by_keyboard else ""
            logger.warning("interrupted: stopping %s%s", names_of(working), leave)
        try:
            end_work(
                working,
                self._workers.wait_for_end,
                jobs_are_stopping=self._stop_work(),
                by_keyboard=by_keyboard,
                since=self._began,
                terms=self._ending,
            )
        except KeyboardInterrupt:
            left = [attempt.at_work for attempt in self._workers.at_work]
            if left:
                logger.warning("exiting at once; not known to have ended: %s", names_of(left))
            raise
