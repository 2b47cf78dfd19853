"""The runner: each step runs as soon as its dependencies are done; completions are events, failures are collected."""

from __future__ import annotations

import contextvars
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.status_file import mark_dependency_failed
from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms
from marin.execution.plan.gc_pause import gc_paused
from marin.execution.report.error_text import log_failure
from marin.execution.report.events import RunObserver, StepEnd, StepEnded, StepQueued, describe_error, notify
from marin.execution.run.attempt import Attempt
from marin.execution.run.children import ticks_now
from marin.execution.run.interruption import DEFAULT_ENDING, EndingTerms, end_work
from marin.execution.run.step_task import StepResult, StepTask, TaskSource
from rigging.errors import InvalidRequest, MarinError

logger = logging.getLogger(__name__)

# Steps that run in this process have a thread each. Threads are cheap, but their number in a process is limited.
MAX_STEP_THREADS = 800

# A function that takes longer than this keeps its thread busy, so that another must take the ready tasks. For shorter
# ones a hand-over to another thread would cost more than the function.
_STALL_SECONDS = 0.001
_MOST_PAUSE_SECONDS = 0.008

# A signal that arrives just before a thread begins to wait is handled only after that wait.
_SIGNAL_SECONDS = 0.25

# Threads that take leases and write statuses at once. On local files more only get into each other's way; on an object
# store they spend their time waiting for answers.
_LOCAL_STARTERS = 1
_REMOTE_STARTERS = 64


def check_max_concurrent(max_concurrent: int | None) -> None:
    """Check the limit of steps that run at once.

    Raises:
        InvalidRequest: It is below 1.
    """
    if max_concurrent is not None and max_concurrent < 1:
        raise InvalidRequest(f"max_concurrent={max_concurrent}: must be at least 1, or None for no limit")


def most_at_work(max_concurrent: int | None) -> int:
    """Return the largest number of tasks that run at once."""
    return min(max_concurrent or MAX_STEP_THREADS, MAX_STEP_THREADS)


class StepRun:
    """One run of the tasks of a source; used once.

    A thread that has finished a task goes on with a task that became ready by it, without a hand-over to another.
    Threads are added until every ready task runs within moments.

    Args:
        source: Gives the tasks as they become ready.
        force_run_failed: Whether steps that failed in an earlier run are tried again.
        max_concurrent: At most this many tasks run at once; None for every ready one (up to `MAX_STEP_THREADS`). Tasks
            that wait for another run to make their output do not count.
        stop_work: Called on an interrupt, before any lease is released: stops jobs, and returns whether there were any.
        terms: How leases are kept.
        ending: How long the end of an interrupted run may take.
        observers: Called with the events of the run.
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
    ) -> None:
        check_max_concurrent(max_concurrent)
        self._source = source
        self._force_run_failed = force_run_failed
        self._limit = most_at_work(max_concurrent)
        self._stop_work = stop_work
        self._terms = terms
        self._ending = ending
        self._began = ticks_now()
        self._observers = observers
        self._tell = functools.partial(notify, observers)
        self._keeper = LeaseKeeper(terms, is_local=source.is_local)
        self._starters = _LOCAL_STARTERS
        self._context = contextvars.copy_context()
        # Below, everything changes under one of these two conditions, which share a lock.
        guard = threading.Lock()
        self._work_or_end = threading.Condition(guard)
        self._supervision = threading.Condition(guard)
        self._ready: deque[StepTask | Attempt] = deque()
        self._at_work: set[Attempt] = set()
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._trouble: BaseException | None = None

    def run(self) -> None:
        """Run every task whose output does not exist.

        An interrupt of this thread (Ctrl-C, SystemExit from a signal handler) stops jobs and the processes that steps
        have started, notifies functions (`step_lease().lost`), and is raised again. A running step becomes FAILED, and
        its lease is released, when its function has ended; at the latest with this process.
        """
        try:
            with gc_paused():
                self._source.start(self)
            self._supervise()
        except BaseException as error:
            self._abandon(by_keyboard=isinstance(error, KeyboardInterrupt))
            raise
        finally:
            with self._work_or_end:
                self._closed = True
                self._work_or_end.notify_all()
            self._source.stop()
            self._keeper.stop()

    def tell_queued(self, name: str, output_path: str) -> None:
        """Tell observers of a new step of the run."""
        if self._observers:
            self._tell(StepQueued(time.time(), name, output_path))

    def add(self, items: Iterable[StepTask | StepResult]) -> None:
        """Add tasks that are ready, and results of tasks that need no work; from any thread."""
        self._settle(items)
        with self._supervision:
            self._supervision.notify()

    def _settle(self, items: Iterable[StepTask | StepResult]) -> None:
        """Note results and those that follow from them, and hand ready tasks to threads."""
        unsettled = deque(items)
        ready: list[StepTask] = []
        while unsettled:
            item = unsettled.popleft()
            if isinstance(item, StepTask):
                ready.append(item)
            else:
                self._note(item)
                unsettled.extend(self._source.ended(item))
        with self._supervision:
            self._ready.extend(ready)
            if self._starters == _LOCAL_STARTERS and any("://" in task.output_path for task in ready):
                self._starters = _REMOTE_STARTERS
            # One of them is taken up by the thread that made it ready.
            if len(self._ready) > 1 or self._source.is_done():
                self._supervision.notify()

    def fail(self, error: BaseException) -> None:
        """End the run with an error; from any thread."""
        with self._supervision:
            self._trouble = error
            self._supervision.notify()

    def _supervise(self) -> None:
        """Wait for the end, and start threads while too few take ready tasks."""
        pause = _STALL_SECONDS
        with self._supervision:
            while not self._source.is_done():
                if self._trouble is not None:
                    raise self._trouble
                if not self._ready:
                    self._supervision.wait(_SIGNAL_SECONDS)
                    continue
                # Frequent looks would slow down threads that need no help.
                pause = _STALL_SECONDS if self._add_threads() else min(2 * pause, _MOST_PAUSE_SECONDS)
                self._supervision.wait(pause)

    def _add_threads(self) -> bool:
        """Start threads, so that beside those that run long functions there are as many as suit the storage.

        The number of threads doubles from look to look while functions keep them busy.

        Returns:
            True if functions keep threads busy.
        """
        stuck_since = time.monotonic() - _STALL_SECONDS
        since = [attempt.working_since for attempt in self._at_work]
        stuck = sum(began is not None and began < stuck_since for began in since)
        active = self._threads - self._idle
        wanted = min(max(self._starters, stuck) - (active - stuck), len(self._ready), self._limit - active)
        if wanted <= 0:
            return stuck > 0
        new = wanted - self._idle
        self._work_or_end.notify(wanted)
        for _ in range(new):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"marin-step-{self._threads}", daemon=True).start()
        return True

    def _serve(self) -> None:
        """Work on one ready task after the other until the run is over; the function of each thread."""
        try:
            while (taken := self._take()) is not None:
                self._work_on(taken)
                del taken  # not held while there is nothing to do
        # A defect of the run itself: to be raised by the run, and not lost with this thread.
        except BaseException as error:
            self.fail(error)

    def _take(self) -> StepTask | Attempt | None:
        with self._work_or_end:
            while not self._closed:
                if self._ready:
                    return self._ready.popleft()
                self._idle += 1
                try:
                    self._work_or_end.wait()
                finally:
                    self._idle -= 1
            return None

    def _work_on(self, taken: StepTask | Attempt) -> None:
        """Make a task's output and note the result; if another run is making it, wait for that in the background."""
        attempt = taken
        if isinstance(attempt, StepTask):
            attempt = Attempt(
                attempt, self._keeper, terms=self._terms, force_run_failed=self._force_run_failed, tell=self._tell
            )
        try:
            result = self._context.copy().run(attempt.run, self._on_begin)
        finally:
            with self._work_or_end:
                self._at_work.discard(attempt)
                closed = self._closed
                if closed:
                    self._work_or_end.notify_all()
        if closed:  # the run waits for it no longer
            return
        if result is not None:
            self._settle([result])
            return
        if taken is not attempt:
            logger.info(
                "step %s: another run is at work on %s, waiting for it", attempt.task.name, attempt.task.output_path
            )
        self._keeper.watch(attempt.lease, functools.partial(self._again, attempt))

    def _on_begin(self, attempt: Attempt) -> None:
        with self._work_or_end:
            self._at_work.add(attempt)
            if self._closed:
                attempt.lease.interrupt()

    def _again(self, attempt: Attempt) -> None:
        with self._supervision:
            self._ready.append(attempt)
            self._supervision.notify()

    def _note(self, result: StepResult) -> None:
        """Record a task's result, and tell observers."""
        task = result.task
        if result.end is StepEnd.DEP_FAILED:
            _mark_dependency_failed(task)
        if self._observers:
            self._tell(_ended(result))
        if result.end is StepEnd.FAILED and result.error is not None:
            log_failure(task.name, task.output_path, result.error)

    def _abandon(self, *, by_keyboard: bool) -> None:
        """End the running tasks of an interrupted run."""
        with self._work_or_end:
            self._closed = True
            self._ready.clear()
            working = [attempt.at_work for attempt in self._at_work]
        end_work(
            working,
            self._all_ended,
            jobs_are_stopping=self._stop_work(),
            by_keyboard=by_keyboard,
            since=self._began,
            terms=self._ending,
        )

    def _all_ended(self, seconds: float) -> bool:
        with self._work_or_end:
            return self._work_or_end.wait_for(lambda: not self._at_work, seconds)


def _ended(result: StepResult) -> StepEnded:
    return StepEnded(
        time.time(),
        result.task.name,
        result.task.output_path,
        result.end,
        result.seconds,
        None if result.error is None else describe_error(result.error),
        result.log,
        tuple(map(str, result.differences)),
        result.queued_seconds,
    )


def _mark_dependency_failed(task: StepTask) -> None:
    try:
        mark_dependency_failed(task.output_path)
    except (OSError, MarinError) as error:
        logger.warning("step %s: could not write DEP_FAILED to %s: %s", task.name, task.output_path, error)
