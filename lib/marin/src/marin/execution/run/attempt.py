"""One attempt to make one output: its lease, its info file, its work, its status."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.status_file import StepAlreadyDone
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms, end_failed, set_step_lease
from marin.execution.record.info import STEP_INFO_FILE
from marin.execution.report.events import RunEvent, StepEnd
from marin.execution.report.progress import StepProgress, set_step_progress
from marin.execution.run.interruption import AtWork
from marin.execution.run.step_task import StepResult, StepTask, made_by_another, worked
from rigging.distributed_lock import LeaseLostError


class Attempt:
    """One attempt at a task whose dependencies are done.

    Args:
        task: The task.
        keeper: Renews its lease.
        terms: How the lease is kept.
        force_run_failed: Whether an output that failed before is tried again.
        tell: Called with the events of the attempt.

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
    ) -> None:
        self.task = task
        self.lease = open_step_lease(task.output_path, task.name, terms)
        self.working_since: float | None = None
        self._keeper = keeper
        self._force_run_failed = force_run_failed
        self._tell = tell
        self._is_first = True
        self._thread = 0

    def run(self, on_begin: Callable[[Attempt], None] = lambda _: None) -> StepResult | None:
        """Make the output in this thread, in a context of its own; may be called again when it returns None.

        Args:
            on_begin: Called as soon as the lease is held.

        Returns:
            How it ended, by an error or not; None when another run is making this output.
        """
        task = self.task
        progress = StepProgress(task.name, task.output_path, self._tell)
        try:
            is_fresh, self._is_first = task.is_fresh and self._is_first, False
            if not self.lease.begin(force_run_failed=self._force_run_failed, is_fresh=is_fresh):
                return None
            self._thread = threading.get_native_id()
            self._keeper.keep(self.lease, task.stop)
            on_begin(self)
            progress = StepProgress(task.name, task.output_path, self._tell)
            self._make(progress)
        except StepAlreadyDone:
            return made_by_another(task)
        except LeaseLostError as error:
            return worked(task, StepEnd.LOST, progress, error)
        # Any exception is that step's failure, SystemExit and KeyboardInterrupt included.
        except BaseException as error:
            return worked(task, StepEnd.FAILED, progress, error)
        finally:
            self._keeper.drop(self.lease)
        return worked(task, StepEnd.SUCCEEDED, progress)

    def run_to_end(self) -> StepResult:
        """Make the output in this thread, after waiting for another run that is making it."""
        while (result := self.run()) is None:
            free = threading.Event()
            self._keeper.watch(self.lease, free.set)
            free.wait()
        return result

    @property
    def at_work(self) -> AtWork:
        """Return what the end of an interrupted run needs to know of it."""
        return AtWork(self.lease, self._thread, self.task.in_process)

    def _make(self, progress: StepProgress) -> None:
        """Do the task's work and end its lease with a true status."""
        task, lease = self.task, self.lease
        set_step_lease(lease)
        set_step_progress(progress)
        try:
            lease.check()
            if task.info is not None:
                lease.write(STEP_INFO_FILE, task.info())
            if task.in_process:
                progress.started()
            self.working_since = time.monotonic()
            try:
                task.work()
            finally:
                self.working_since = None
        except BaseException as error:
            end_failed(lease, error)
            raise
        lease.end(STATUS_SUCCESS)
