"""The jobs that a run waits for: reported while queued and running, stopped, awaited."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from marin.execution.jobs.step_call import CALLS_HERE
from marin.execution.report.events import StepTimedOut
from marin.execution.report.progress import StepProgress, step_progress
from rigging.errors import DeadlineExceeded, JobFailed, MarinError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fray.client import JobHandle

logger = logging.getLogger(__name__)

# Seconds between looks at a queued job: the first pause, and the longest.
_FIRST_LOOK_SECONDS = 0.1
_LAST_LOOK_SECONDS = 5.0

# How long the end of a failed or stopped job is waited for before its step is tried again.
_END_SECONDS = 60.0


class LiveJobs:
    """The jobs that a run waits for, so that all or one of them can be stopped."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._handles: dict[str, JobHandle] = {}
        self._ids: dict[str, str] = {}
        self._failed: dict[str, JobHandle] = {}
        self._stopped = False

    def wait(self, handle: JobHandle, output_path: str = "", timeout: float | None = None) -> None:
        """Wait until the job that makes an output succeeds. If the run has been stopped, terminate the job immediately.

        Args:
            handle: The job.
            output_path: The output.
            timeout: Seconds of running after which the job is stopped; None for no limit.

        Raises:
            StepTimedOut: The timeout stopped the job. `has_ended` returns whether it has ended.
            Exception: The job's failure.
        """
        with self._guard:
            stopped = self._stopped
            self._handles[output_path] = handle
            self._ids[output_path] = str(handle.job_id)
        if stopped:
            handle.terminate()
        try:
            _wait(handle, step_progress(), timeout)
        except BaseException:
            with self._guard:
                self._failed[output_path] = handle
            raise
        finally:
            with self._guard:
                self._handles.pop(output_path, None)

    def has_ended(self, output_path: str, patience_seconds: float = _END_SECONDS) -> bool:
        """Wait for the end of a failed job. Return False if it may still run."""
        with self._guard:
            handle = self._failed.pop(output_path, None)
        if handle is None:
            return True
        deadline = time.monotonic() + patience_seconds
        try:
            if not handle.status().finished():
                handle.terminate()
                handle.wait(patience_seconds, raise_on_failure=False)
        # Whatever a cluster that does not answer makes of it: the job may still run.
        except Exception as error:
            logger.warning("whether job %s has ended is unknown: %s", handle.job_id, error)
            return False
        # Jobs of an in-process client end at once when they are stopped, and their functions when they return.
        return CALLS_HERE.wait_for_end(output_path, max(0.0, deadline - time.monotonic()))

    def take_log(self, output_path: str) -> str | None:
        """Return the location of the log of an output's job; None if there was no job, or on the second call."""
        with self._guard:
            job_id = self._ids.pop(output_path, None)
        return None if job_id is None else f"job {job_id}"

    def terminate(self) -> bool:
        """Stop every job that the run waits for, and every later one. A job that cannot be stopped is logged.

        Returns:
            True if there were jobs to stop.
        """
        with self._guard:
            self._stopped = True
            handles = list(self._handles.values())
        _terminate(handles)
        return bool(handles)

    def terminate_one(self, output_path: str) -> None:
        """Stop the job that makes an output, if there is one."""
        with self._guard:
            handle = self._handles.get(output_path)
        if handle is not None:
            logger.warning("stopping job %s: its step lost the lease on %s", handle.job_id, output_path)
            _terminate([handle])


def _wait(handle: JobHandle, progress: StepProgress, timeout: float | None) -> None:
    """Wait until a job succeeds, reporting when and why it is queued and when it runs. Stop it at the timeout."""
    pause = _FIRST_LOOK_SECONDS
    while (reason := _queue_reason(handle)) is not None:
        progress.queued(reason)
        try:
            handle.wait(timeout=pause)
        except DeadlineExceeded:
            if not handle.status().finished():
                pause = min(1.5 * pause, _LAST_LOOK_SECONDS)
                continue
            handle.wait()  # the job has ended: DeadlineExceeded may be its own error
        except JobFailed as error:
            # It ran, and failed, since the last look; unless it was stopped in the queue.
            if getattr(error, "failed_status", None) != "stopped":
                progress.started(ended=True)
            raise
        progress.started(ended=True)
        return
    progress.started()
    if timeout is None:
        handle.wait()
        return
    try:
        handle.wait(timeout)
    except DeadlineExceeded:
        if handle.status().finished():
            handle.wait()  # DeadlineExceeded may be its own error, or it has ended just now
            return
        _terminate([handle])
        raise StepTimedOut(
            f"job {handle.job_id}: still running after its step's timeout of {timeout:g} s, and stopped"
        ) from None


def _queue_reason(handle: JobHandle) -> str | None:
    """Return why a job is not running yet, "" if unknown; None for a job that runs or has ended."""
    from fray.client import TellsPendingReason
    from fray.types import JobStatus

    if handle.status() is not JobStatus.PENDING:
        return None
    return handle.pending_reason() if isinstance(handle, TellsPendingReason) else ""


def _terminate(handles: Sequence[JobHandle]) -> None:
    from fray.client import stop_parts

    for part, stop in stop_parts(handles):
        try:
            stop()
        except (MarinError, OSError) as error:
            names = " to ".join(dict.fromkeys([str(part[0].job_id), str(part[-1].job_id)]))
            logger.warning("could not stop job %s: %s", names, error)
