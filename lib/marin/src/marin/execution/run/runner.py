"""The runner: each step runs as soon as its dependencies are done; completions are events, failures are collected."""

from __future__ import annotations

import contextvars
import functools
import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms
from marin.execution.plan.gc_pause import gc_paused
from marin.execution.report.events import RunObserver, StepEnd, StepQueued, notify
from marin.execution.run.attempt import Attempt
from marin.execution.run.children import ticks_now
from marin.execution.run.crew import Crew, check_max_concurrent, most_at_work
from marin.execution.run.interruption import DEFAULT_ENDING, EndingTerms, end_work, names_of
from marin.execution.run.outcomes import ended, note_not_run
from marin.execution.run.step_task import StepResult, StepTask, TaskSource

logger = logging.getLogger(__name__)

# A function that takes longer than this keeps its thread busy, so that another must take the ready tasks. For shorter
# ones a hand-over to another thread would cost more than the function.
_STALL_SECONDS = 0.001
_MOST_PAUSE_SECONDS = 0.008

# A signal that arrives just before a thread begins to wait is handled only after that wait.
_SIGNAL_SECONDS = 0.25

# Threads that take leases and write statuses at once; see `Crew.starters`.
_LOCAL_STARTERS = 1
_REMOTE_STARTERS = 64


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
        on_failure: Called with the result of each step that failed or lost its lease.
        debug: Called with the result of each step that failed, in the thread of `run`; no step starts meanwhile.
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
        self._limit = most_at_work(max_concurrent)
        self._stop_work = stop_work
        self._terms = terms
        self._ending = ending
        self._began = ticks_now()
        self._observers = observers
        self._on_failure = on_failure
        self._debug = debug
        self._tell = functools.partial(notify, observers)
        self._keeper = LeaseKeeper(terms, is_local=source.is_local)
        self._starters = _LOCAL_STARTERS
        self._context = contextvars.copy_context()
        # Below, everything changes under this lock, which two conditions share.
        self._guard = guard = threading.Lock()
        self._work_or_end = threading.Condition(guard)
        self._supervision = threading.Condition(guard)
        self._ready: deque[StepTask | Attempt] = deque()
        self._later: list[tuple[float, int, Attempt]] = []
        self._numbers = itertools.count()
        self._at_work: set[Attempt] = set()
        self._threads = 0
        self._idle = 0
        self._is_looking = False
        self._closed = False
        self._trouble: BaseException | None = None
        self._to_debug: deque[StepResult] = deque()

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
            with self._guard:
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
        with self._guard:
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
        with self._guard:
            self._ready.extend(ready)
            if self._starters == _LOCAL_STARTERS and any("://" in task.output_path for task in ready):
                self._starters = _REMOTE_STARTERS
            # One of them is taken up by the thread that made it ready.
            if (len(self._ready) > 1 and not self._is_looking) or self._source.is_done():
                self._supervision.notify()

    def fail(self, error: BaseException) -> None:
        """End the run with an error; from any thread."""
        with self._guard:
            self._trouble = error
            self._supervision.notify()

    def _supervise(self) -> None:
        """Wait for the end, and start threads while too few take ready tasks."""
        pause = _STALL_SECONDS
        with self._guard:
            while not self._source.is_done() or self._to_debug:
                if self._trouble is not None:
                    raise self._trouble
                if self._to_debug:
                    self._debug_next()
                until_due = self._take_due() if self._later else _SIGNAL_SECONDS
                if not self._ready:
                    self._supervision.wait(until_due)
                    continue
                # Frequent looks would slow down threads that need no help, and so would waking this one for each task.
                pause = _STALL_SECONDS if self._add_threads() else min(2 * pause, _MOST_PAUSE_SECONDS)
                self._is_looking = True
                self._supervision.wait(pause)
                self._is_looking = False

    def _debug_next(self) -> None:
        """Debug a failure while the lock, which is held, is given up; then let ready steps start."""
        assert self._debug is not None
        self._guard.release()
        try:
            self._debug(self._to_debug[0])
        finally:
            self._guard.acquire()
        self._to_debug.popleft()
        self._work_or_end.notify_all()

    def _add_threads(self) -> bool:
        """Start threads, so that beside those that run long functions there are as many as suit the storage.

        The number of threads doubles from look to look while functions keep them busy.

        Returns:
            True if functions keep threads busy.
        """
        crew = self._crew()
        wanted = crew.wanted(len(self._ready), self._limit)
        if wanted == 0:
            return crew.stuck > 0
        new = wanted - self._idle
        self._work_or_end.notify(wanted)
        for _ in range(new):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"marin-step-{self._threads}", daemon=True).start()
        return True

    def _crew(self) -> Crew:
        stuck_since = time.monotonic() - _STALL_SECONDS
        since = [attempt.working_since for attempt in self._at_work]
        stuck = sum(began is not None and began < stuck_since for began in since)
        return Crew(self._starters, self._threads - self._idle, stuck)

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
        with self._guard:
            while not self._closed:
                if self._ready and not self._to_debug:
                    if not self._may_rest():
                        return self._ready.popleft()
                    self._supervision.notify()  # the others may yet be kept busy
                self._idle += 1
                try:
                    self._work_or_end.wait()
                finally:
                    self._idle -= 1
            return None

    def _may_rest(self) -> bool:
        # Of few threads none may, so that nobody need be counted.
        return self._threads - self._idle > self._starters and self._crew().is_one_too_many

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
            with self._guard:
                self._at_work.discard(attempt)
                closed = self._closed
                if closed:
                    self._work_or_end.notify_all()
        if closed:  # the run waits for it no longer
            return
        if result is not None:
            following = attempt.next(result)
            if following is None:
                self._settle([result])
            else:
                self._try_later(*following)
            return
        if taken is not attempt:
            logger.info(
                "step %s: another run is at work on %s, waiting for it", attempt.task.name, attempt.task.output_path
            )
        self._keeper.watch(attempt.lease, functools.partial(self._again, attempt))

    def _on_begin(self, attempt: Attempt) -> None:
        with self._guard:
            self._at_work.add(attempt)
            if self._closed:
                attempt.lease.interrupt()

    def _try_later(self, attempt: Attempt, delay: float) -> None:
        with self._guard:
            heapq.heappush(self._later, (time.monotonic() + delay, next(self._numbers), attempt))
            self._supervision.notify()

    def _take_due(self) -> float:
        """Make the attempts ready whose time has come; return the seconds until the next, or until a signal is seen."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        return min(_SIGNAL_SECONDS, self._later[0][0] - now) if self._later else _SIGNAL_SECONDS

    def _again(self, attempt: Attempt) -> None:
        with self._guard:
            self._ready.append(attempt)
            self._supervision.notify()

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
                with self._guard:
                    self._to_debug.append(result)
                    self._supervision.notify()

    def _abandon(self, *, by_keyboard: bool) -> None:
        """End the running tasks of an interrupted run."""
        with self._guard:
            self._closed = True
            self._ready.clear()
            working = [attempt.at_work for attempt in self._at_work]
        if working:
            leave = "; Ctrl-C again leaves at once" if by_keyboard else ""
            logger.warning("interrupted: stopping %s%s", names_of(working), leave)
        try:
            end_work(
                working,
                self._all_ended,
                jobs_are_stopping=self._stop_work(),
                by_keyboard=by_keyboard,
                since=self._began,
                terms=self._ending,
            )
        except KeyboardInterrupt:
            with self._guard:
                left = [attempt.at_work for attempt in self._at_work]
            if left:
                logger.warning("left at once: not seen to end: %s", names_of(left))
            raise

    def _all_ended(self, seconds: float) -> bool:
        with self._guard:
            return self._work_or_end.wait_for(lambda: not self._at_work, seconds)
