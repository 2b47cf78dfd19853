"""One attempt to make one output: its lease, info file, work and status."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from marin.execution.artifact import write_artifact
from marin.execution.jobs.results import keep_content
from marin.execution.lease.circles import begin_wait, end_wait, making
from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import StepAlreadyDone
from marin.execution.lease.status_words import STATUS_FAILED, STATUS_SUCCESS
from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms, end_failed, set_step_lease
from marin.execution.log.step_log import StepLog, set_step_log
from marin.execution.record.info import STEP_INFO_FILE
from marin.execution.record.readers import await_inputs
from marin.execution.report.events import AttemptUse, RunEvent, StepEnd, StepTimedOut
from marin.execution.report.progress import Measuring, StepProgress, set_step_progress
from marin.execution.run.interruption import AtWork
from marin.execution.run.limited_call import LimitedCall
from marin.execution.run.outcomes import attempts_of, outcome_of, outcome_of_failure, retrying
from marin.execution.run.step_task import StepResult, StepTask, made_by_another, worked
from marin.execution.run.trying import NEVER, Tried, advance
from marin.full_disk import full_disk, without_right
from rigging.distributed_lock import LeaseLostError
from rigging.errors import MarinError

logger = logging.getLogger(__name__)


class Attempt:
    """One attempt at a task whose dependencies are done.

    Args:
        task: The task.
        keeper: Renews its lease.
        terms: The timings of the lease.
        force_run_failed: Whether to retry an output that failed before.
        tell: Called with the events of the attempt.
        tried: The outcome of the earlier attempts.
        earlier: The earlier attempts.

    Attributes:
        lease: The lease of the output.
        working_since: When the task's function was called, by `time.monotonic`; None before and after.
    """

    def __init__(
        self,
        task: StepTask,
        keeper: LeaseKeeper,
        *,
        terms: LeaseTerms = DEFAULT_TERMS,
        force_run_failed: bool = True,
        tell: Callable[[RunEvent], None] = lambda _: None,
        tried: Tried = NEVER,
        earlier: tuple[AttemptUse, ...] = (),
    ) -> None:
        self.task = task
        self.lease = open_step_lease(task.output_path, task.name, terms, is_fresh=task.is_fresh)
        self.working_since: float | None = None
        self._keeper = keeper
        self._force_run_failed = force_run_failed
        self._tell = tell
        self._tried = tried
        self._earlier = earlier
        self._terms = terms
        self._is_first = tried is NEVER
        self._is_prepared = False
        self._waits = False
        self._follows_unfinished = task.was_running and tried is NEVER
        self._thread = 0
        self._log: StepLog | None = None
        self._call: LimitedCall[bytes | None] | None = None
        self._late: LimitedCall[bytes | None] | None = None

    def run(self, on_begin: Callable[[Attempt], None] = lambda _: None) -> StepResult | None:
        """Make the output in this thread, in a separate context. After None it may be called again.

        Args:
            on_begin: Called once the lease is held.

        Returns:
            The result, successful or not; None if another run is making this output.
        """
        result = self._run(on_begin)
        return replace(result, earlier=self._earlier) if result is not None and self._earlier else result

    def _run(self, on_begin: Callable[[Attempt], None]) -> StepResult | None:
        task = self.task
        progress: StepProgress | None = None
        log: StepLog | None = None
        try:
            if not self._is_prepared:
                task.prepare()
                self._is_prepared = True
            is_fresh, self._is_first = task.is_fresh and self._is_first, False
            if self._waits:
                end_wait(task.output_path)
                self._waits = False
            with self.lease.together():
                if self.lease.begin(force_run_failed=self._force_run_failed, is_fresh=is_fresh):
                    self._thread = threading.get_native_id()
                    self._keeper.keep(self.lease, task.stop)
                    on_begin(self)
                    progress = StepProgress(task.name, task.output_path, self._tell)
                    log = self._describe(progress, is_fresh)
            if progress is None or log is None:
                self._follows_unfinished = True
                begin_wait(task.output_path)
                self._waits = True
                return None
            with making(task.output_path):
                self._make(progress, log)
        except StepAlreadyDone:
            return made_by_another(task)
        except LeaseLostError as error:
            return self._worked(StepEnd.LOST, progress, error)
        # Any exception is that step's failure, SystemExit and KeyboardInterrupt included.
        except BaseException as error:
            if progress is None:
                error = without_right(error, task.output_path) or error
            full = full_disk(error, task.output_path)
            if full is not None:
                error.add_note(f"{full}; free some space, and run it again")
            return self._worked(StepEnd.FAILED, progress, error)
        finally:
            if self._late is None:
                self._keeper.drop(self.lease)
            else:
                self._late.when_ended(self._end_late)
        return worked(task, StepEnd.SUCCEEDED, progress)

    def _worked(self, end: StepEnd, progress: StepProgress | None, error: BaseException) -> StepResult:
        """Return the result of a failed attempt, with or without the lease."""
        return worked(
            self.task, end, progress or StepProgress(self.task.name, self.task.output_path, self._tell), error
        )

    def run_to_end(self) -> StepResult:
        """Make the output in this thread, waiting for another run that is making it, and with all retries."""
        attempt = self
        while True:
            while (result := attempt.run()) is None:
                free = threading.Event()
                self._keeper.watch(attempt.lease, free.set)
                free.wait()
            following = attempt.next(result)
            if following is None:
                return result
            attempt, delay = following
            time.sleep(delay)

    def next(self, result: StepResult) -> tuple[Attempt, float] | None:
        """Return the next attempt and the delay in seconds; None if this was the last.

        It first waits for leftovers of this attempt that still run.

        Args:
            result: The result of this attempt.
        """
        task = self.task
        if result.ok or not task.tries.retries:
            return None
        outcome = outcome_of(result)
        following = advance(task.tries, self._tried, outcome, has_ended=self._late is None)
        if following.delay is None:
            return None
        if not task.has_ended():
            logger.error("step %s: not retried, because its last attempt could not be stopped", task.name)
            return None
        self._tell(retrying(result, outcome, following))
        again = Attempt(
            task,
            self._keeper,
            terms=self._terms,
            # That this very run's last attempt failed is no reason to refuse the next.
            force_run_failed=True,
            tell=self._tell,
            tried=following.tried,
            earlier=attempts_of(result),
        )
        return again, following.delay

    @property
    def at_work(self) -> AtWork:
        """Return the facts that the end of an interrupted run needs."""
        return AtWork(self.lease, self._log, self._thread, self.task.in_process)

    def _describe(self, progress: StepProgress, is_fresh: bool) -> StepLog:
        """Write the info file, and return the attempt's log."""
        task, lease = self.task, self.lease
        set_step_lease(lease)
        set_step_progress(progress)
        log = StepLog(lease.output_path, self._tried.attempts + 1, lease, is_fresh=is_fresh)
        log.follows_unfinished = self._follows_unfinished
        set_step_log(log)
        self._log = log
        try:
            lease.check()
            if task.info is not None:
                lease.write(STEP_INFO_FILE, task.info())
        except BaseException as error:
            self._end_failed(log, error)
            raise
        return log

    def _make(self, progress: StepProgress, log: StepLog) -> None:
        """Do the task's work, and end its lease with the matching status."""
        try:
            await_inputs(self.task.dependencies, self.task.name, self.lease.lost_event.wait)
            self.lease.check()
            if self.task.in_process:
                progress.started()
            self.working_since = time.monotonic()
            try:
                result = self._work(progress)
            finally:
                self.working_since = None
            # What an interrupted function returned does not count, which its log is to say.
            self.lease.check()
        except BaseException as error:
            self._end_failed(log, error)
            raise
        log.end()
        if not self._end_with(result):
            keep_content(result or b"", self.lease.output_path, self.lease)
            self.lease.end(STATUS_SUCCESS)

    def _delay_after(self, error: BaseException) -> float | None:
        """Return the seconds until the next attempt after a failed one; None for no further attempt."""
        if not self.task.tries.retries or isinstance(error, LeaseLostError):
            return None
        may_run = isinstance(error, StepTimedOut) and error.still_runs
        return advance(self.task.tries, self._tried, outcome_of_failure(error), has_ended=not may_run).delay

    def _end_failed(self, log: StepLog, error: BaseException) -> None:
        log.end(error, self._delay_after(error))
        if isinstance(error, StepTimedOut) and error.still_runs:
            self._late = self._call
        else:
            end_failed(self.lease, error)

    def _end_with(self, result: bytes | None) -> bool:
        """Store the return value and end the lease in one operation. Return False if storing must be retried."""
        lease = self.lease
        with lease.together():
            if result is not None:
                try:
                    write_artifact(lease.output_path, lease.write, result)
                except LeaseLostError:
                    raise
                # Storage libraries may raise any exception; what cannot be stored at all is said at the next try.
                except Exception as error:
                    logger.debug("step %s: its return value is not stored yet: %s", self.task.name, error)
                    return False
            lease.end(STATUS_SUCCESS)
        return True

    def _work(self, progress: StepProgress) -> bytes | None:
        task = self.task
        if not task.in_process:
            return task.work()
        if task.tries.timeout is None:
            with Measuring(progress):
                return task.work()

        def work() -> bytes | None:
            with Measuring(progress):
                return task.work()

        self._call = LimitedCall(work, self.lease, task.tries.timeout)
        return self._call.run(self._note_thread)

    def _note_thread(self, thread: int) -> None:
        self._thread = thread

    def _end_late(self) -> None:
        """End the lease of a function that continued past its timeout."""
        try:
            if self.lease.held:
                self.lease.end(STATUS_FAILED)
        except (OSError, MarinError) as error:
            logger.warning("step %s: its function has ended long after its timeout: %s", self.task.name, error)
        finally:
            self._keeper.drop(self.lease)
