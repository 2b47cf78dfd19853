"""Running steps: each as soon as its dependencies are done, every completion an event, failures collected."""

from __future__ import annotations

import contextvars
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import (
    PreviousTaskFailedError,
    StepAlreadyDone,
    check_status,
    mark_dependency_failed,
)
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms, StepLease, end_failed, set_step_lease
from marin.execution.plan.gc_pause import gc_paused
from marin.execution.record.info import STEP_INFO_FILE
from marin.execution.report.error_text import log_failure
from marin.execution.report.events import RunObserver, StepEnded, StepQueued, notify
from marin.execution.report.progress import StepProgress, set_step_progress
from marin.execution.run.children import ticks_now
from marin.execution.run.interruption import DEFAULT_ENDING, AtWork, EndingTerms, end_work
from marin.execution.run.step_task import (
    STEP_ENDS,
    Outcome,
    StepResult,
    StepTask,
    describe_error,
    made_by_another,
    worked,
)
from rigging.distributed_lock import LeaseLostError
from rigging.errors import InvalidRequest, MarinError, StepFailed

__all__ = ["MAX_STEP_THREADS", "Outcome", "StepResult", "StepRun", "StepTask", "check_max_concurrent", "describe_error"]

logger = logging.getLogger(__name__)

# Steps that run in this process have a thread each. A thread is cheap, but a process may have only so many.
MAX_STEP_THREADS = 800

# A function that takes longer than this holds its thread up, so that others must take up what is ready. Trivial ones
# do not: handing the next step over to another thread would cost more than they do.
_STALL_SECONDS = 0.001
_MOST_PAUSE_SECONDS = 0.008

# Threads that take leases and write statuses at once. On local files more only get into each other's way; on an object
# store they spend their time waiting for answers.
_STARTERS = {True: 1, False: 64}


def check_max_concurrent(max_concurrent: int | None) -> None:
    """Refuse a limit that would let nothing run.

    Raises:
        InvalidRequest: it is below 1.
    """
    if max_concurrent is not None and max_concurrent < 1:
        raise InvalidRequest(f"max_concurrent={max_concurrent}: must be at least 1, or None for no limit")


class StepRun:
    """One run over a set of tasks; used once.

    Threads take up tasks, and take up the next when they are done: what follows a task needs no hand-over. There are
    as many threads as it takes for every ready task to be at work within moments.

    Args:
        tasks: The tasks, any order, no cycles.
        statuses: Status of each output path at the start.
        force_run_failed: Whether what failed in an earlier run is tried again.
        max_concurrent: Tasks at work at once; None for every ready one (up to `MAX_STEP_THREADS`). A task that waits
            for another run to make its output is not at work.
        stop_work: Called on an interrupt, before any lease is given up: stops what runs outside this process, and says
            whether there was any.
        terms: How leases are kept.
        ending: How long the end of an interrupted run may take.
        observers: Who is told what happens.
    """

    def __init__(
        self,
        tasks: Sequence[StepTask],
        statuses: Mapping[str, str | None],
        *,
        force_run_failed: bool = True,
        max_concurrent: int | None = None,
        stop_work: Callable[[], bool] = lambda: False,
        terms: LeaseTerms = DEFAULT_TERMS,
        ending: EndingTerms = DEFAULT_ENDING,
        observers: Sequence[RunObserver] = (),
    ) -> None:
        check_max_concurrent(max_concurrent)
        self._tasks = {task.output_path: task for task in tasks}
        self._statuses = statuses
        self._force_run_failed = force_run_failed
        self._limit = min(max_concurrent or MAX_STEP_THREADS, MAX_STEP_THREADS)
        self._stop_work = stop_work
        self._terms = terms
        self._ending = ending
        self._began = ticks_now()
        self._observers = observers
        is_local = not any("://" in path for path in self._tasks)
        self._keeper = LeaseKeeper(terms, is_local=is_local)
        self._starters = _STARTERS[is_local]
        self._context = contextvars.copy_context()
        self._results: dict[str, StepResult] = {}
        self._waiting_for: dict[str, set[str]] = {}
        self._dependants: dict[str, list[str]] = {path: [] for path in self._tasks}
        # Below, everything changes under one of these two conditions, which share a lock.
        guard = threading.Lock()
        self._work_or_end = threading.Condition(guard)
        self._supervision = threading.Condition(guard)
        self._ready: deque[str] = deque()
        self._leases: dict[str, StepLease] = {}
        self._at_work: dict[StepLease, AtWork] = {}
        self._working: dict[str, float] = {}
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._trouble: BaseException | None = None

    def run(self) -> list[StepResult]:
        """Run every task whose output is not there, and return the results in the order of the tasks.

        An interrupt of this thread (Ctrl-C, SystemExit from a signal handler) stops jobs and the processes that steps
        have started, tells functions (`step_lease().lost`), and is raised again. The status of what was at work becomes
        FAILED, and its lease is given up, when its function has ended; at the latest with this process.
        """
        try:
            with gc_paused():
                self._queue()
            self._supervise()
        except BaseException as error:
            self._abandon(by_keyboard=isinstance(error, KeyboardInterrupt))
            raise
        finally:
            with self._work_or_end:
                self._closed = True
                self._work_or_end.notify_all()
            self._keeper.stop()
        return [self._results[path] for path in self._tasks]

    def _queue(self) -> None:
        """Note what waits for what, and settle what waits for nothing."""
        for path, task in self._tasks.items():
            self._waiting_for[path] = waiting = {other for other in task.dependencies if other in self._tasks}
            for dependency in waiting:
                self._dependants[dependency].append(path)
            self._tell_queued(task)
        self._settle([path for path, waiting in self._waiting_for.items() if not waiting])

    def _supervise(self) -> None:
        """Wait for the end, and have threads started while too few take up what is ready."""
        pause = _STALL_SECONDS
        with self._supervision:
            while len(self._results) < len(self._tasks):
                if self._trouble is not None:
                    raise self._trouble
                if not self._ready:
                    self._supervision.wait()
                    continue
                # Looking often at threads that get on well would slow them down.
                pause = _STALL_SECONDS if self._add_threads() else min(2 * pause, _MOST_PAUSE_SECONDS)
                self._supervision.wait(pause)

    def _add_threads(self) -> bool:
        """Have as many threads take up tasks as storage deserves, beside those that are held up by their functions.

        The more are held up, the more are to come: their number doubles from look to look.

        Returns:
            Whether functions hold threads up.
        """
        stuck_since = time.monotonic() - _STALL_SECONDS
        stuck = sum(since < stuck_since for since in list(self._working.values()))
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
        """A thread: one ready task after the other, until the run is over."""
        try:
            while (path := self._take()) is not None:
                result = self._context.copy().run(self._attempt, self._tasks[path])
                if result is not None:
                    self._finish(result)
        # A defect of the run itself: to be raised by the run, and not lost with this thread.
        except BaseException as error:
            with self._supervision:
                self._trouble = error
                self._supervision.notify()

    def _take(self) -> str | None:
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

    def _settle(self, paths: Sequence[str]) -> None:
        """Book the results of tasks that need no work, and of those that follow; the others become ready."""
        unsettled = list(paths)
        ready = []
        while unsettled:
            path = unsettled.pop()
            result = self._settled(self._tasks[path])
            if result is None:
                ready.append(path)
            else:
                unsettled += self._book(result)
        if not ready:
            return
        ready.reverse()
        with self._supervision:
            self._ready.extend(ready)
            # One of them is taken up by the thread that made it ready.
            if len(self._ready) > 1:
                self._supervision.notify()

    def _settled(self, task: StepTask) -> StepResult | None:
        """The result of a task that needs no work; None when it does."""
        status = self._statuses.get(task.output_path)
        if status == STATUS_SUCCESS:
            return StepResult(task, Outcome.ALREADY_DONE, differences=task.differences)
        failed = [self._results[path] for path in task.dependencies if path in self._results]
        failed = [result for result in failed if not result.ok]
        if failed:
            return StepResult(task, Outcome.DEPENDENCY_FAILED, error=_dependency_error(failed[0]))
        try:
            check_status(status, task.name, task.output_path, force_run_failed=self._force_run_failed)
        except PreviousTaskFailedError as error:
            return StepResult(task, Outcome.FAILED, error=error)
        return None

    def _finish(self, result: StepResult) -> None:
        """Book the result of work, and go on from there."""
        with self._work_or_end:
            closed = self._closed
        if not closed:  # else nobody waits for it any more
            self._settle(self._book(result))

    def _book(self, result: StepResult) -> list[str]:
        """Book a result and give the tasks that it leaves waiting for nothing."""
        task = result.task
        if result.outcome is Outcome.DEPENDENCY_FAILED:
            _mark_dependency_failed(task)
        self._tell_ended(result)
        if result.outcome is Outcome.FAILED and result.error is not None:
            log_failure(task.name, task.output_path, result.error)
        with self._supervision:
            # Before the dependants are freed, as they look at it.
            self._results[task.output_path] = result
            free = []
            for path in self._dependants[task.output_path]:
                self._waiting_for[path].discard(task.output_path)
                if not self._waiting_for[path]:
                    free.append(path)
            if len(self._results) == len(self._tasks):
                self._supervision.notify()
        return free

    def _attempt(self, task: StepTask) -> StepResult | None:
        """Make a task's output; None when somebody else is at work on it: it will be ready again after that."""
        path = task.output_path
        progress = StepProgress(task.name, path, functools.partial(notify, self._observers))
        lease = self._leases.get(path) or open_step_lease(path, task.name, self._terms)
        try:
            is_fresh = path in self._statuses and self._statuses[path] is None and path not in self._leases
            if not lease.begin(force_run_failed=self._force_run_failed, is_fresh=is_fresh):
                self._wait_for_another(task, lease)
                return None
            self._keeper.keep(lease, task.stop)
            with self._work_or_end:
                self._at_work[lease] = AtWork(lease, threading.get_native_id(), task.in_process)
                if self._closed:
                    lease.interrupt()
            progress = StepProgress(task.name, path, functools.partial(notify, self._observers))
            self._make(task, lease, progress)
        except StepAlreadyDone:
            return made_by_another(task)
        except LeaseLostError as error:
            return worked(task, Outcome.LOST, progress, error)
        # A step may raise anything, SystemExit and KeyboardInterrupt included; all of it is that step's failure.
        except BaseException as error:
            return worked(task, Outcome.FAILED, progress, error)
        finally:
            self._keeper.drop(lease)
            with self._work_or_end:
                self._at_work.pop(lease, None)
                if self._closed:
                    self._work_or_end.notify_all()
        return worked(task, Outcome.RAN, progress)

    def _make(self, task: StepTask, lease: StepLease, progress: StepProgress) -> None:
        """Do a task's work and end its lease with a true status."""
        set_step_lease(lease)
        set_step_progress(progress)
        try:
            lease.check()
            if task.info is not None:
                lease.write(STEP_INFO_FILE, task.info)
            if task.in_process:
                progress.started()
            self._working[task.output_path] = time.monotonic()
            try:
                task.work()
            finally:
                del self._working[task.output_path]
        except BaseException as error:
            end_failed(lease, error)
            raise
        lease.end(STATUS_SUCCESS)

    def _wait_for_another(self, task: StepTask, lease: StepLease) -> None:
        if task.output_path not in self._leases:
            logger.info("step %s: another run is at work on %s, waiting for it", task.name, task.output_path)
            self._leases[task.output_path] = lease

        def again() -> None:
            with self._supervision:
                self._ready.append(task.output_path)
                self._supervision.notify()

        self._keeper.watch(lease, again)

    def _abandon(self, *, by_keyboard: bool) -> None:
        """End what is at work when the run is interrupted."""
        with self._work_or_end:
            self._closed = True
            self._ready.clear()
            working = list(self._at_work.values())
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

    def _tell_queued(self, task: StepTask) -> None:
        if self._observers:
            notify(self._observers, StepQueued(time.time(), task.name, task.output_path))

    def _tell_ended(self, result: StepResult) -> None:
        if not self._observers:
            return
        task = result.task
        error = None if result.error is None else describe_error(result.error)
        end = StepEnded(
            time.time(),
            task.name,
            task.output_path,
            STEP_ENDS[result.outcome],
            result.seconds,
            error,
            result.log,
            tuple(map(str, result.differences)),
            result.queued_seconds,
        )
        notify(self._observers, end)


def _dependency_error(failed: StepResult) -> BaseException:
    if failed.outcome is Outcome.DEPENDENCY_FAILED and failed.error is not None:
        return failed.error
    task = failed.task
    return StepFailed(f"dependency {task.name} failed ({task.output_path}): {describe_error(failed.error)}")


def _mark_dependency_failed(task: StepTask) -> None:
    try:
        mark_dependency_failed(task.output_path)
    except (OSError, MarinError) as error:
        logger.warning("step %s: could not write DEP_FAILED to %s: %s", task.name, task.output_path, error)
