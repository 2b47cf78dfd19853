"""Placement of a step's function: in this process, or as a job of its own."""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from marin.execution.config.step import ExecutorStep
from marin.execution.config.tries import ONCE, Tries
from marin.execution.jobs.output import shown_output
from marin.execution.jobs.remote import RemoteCallable, job_name, job_region, remote, submit_step
from marin.execution.jobs.results import take_result_of_job
from marin.execution.jobs.step_call import CALLS_HERE, RETURNED, call_step, mirror_budget_gb
from marin.execution.lease.step_lease import step_lease
from marin.execution.log.kept_log import complete_former, log_kept
from marin.execution.log.own import LogTask
from marin.execution.log.step_log import step_log
from marin.execution.log.step_output import Speaker, end_speech, speaking, spoken_by
from marin.execution.report.events import StepTimedOut
from marin.execution.report.progress import StepProgress, step_progress
from rigging.errors import DeadlineExceeded, InvalidRequest, JobFailed, MarinError
from rigging.process.calls import generator_problem, is_generator_function, name_of

if TYPE_CHECKING:
    from fray.client import JobHandle

logger = logging.getLogger(__name__)


# Seconds between looks at a queued job: the first pause, and the longest.
_FIRST_LOOK_SECONDS = 0.1
_LAST_LOOK_SECONDS = 5.0

# How long the end of a failed or stopped job is waited for before its step is tried again.
_END_SECONDS = 60.0


class LiveJobs:
    """The jobs that a run waits for, so that they can be stopped, all or one by one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._handles: dict[str, JobHandle] = {}
        self._ids: dict[str, str] = {}
        self._failed: dict[str, JobHandle] = {}
        self._stopped = False

    def wait(self, handle: JobHandle, output_path: str = "", timeout: float | None = None) -> None:
        """Wait until the job that makes an output succeeds; terminate it at once if the run has been stopped.

        Args:
            handle: The job.
            output_path: The output.
            timeout: Seconds that it may run before it is stopped; None for no limit.

        Raises:
            StepTimedOut: It was stopped; whether it has ended, `has_ended` says.
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
        """Wait for the end of the job that failed to make an output; False if it may still run."""
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
            logger.warning("job %s could not be seen to end: %s", handle.job_id, error)
            return False
        # Jobs of an in-process client end at once when they are stopped, and their functions when they return.
        return CALLS_HERE.wait_for_end(output_path, max(0.0, deadline - time.monotonic()))

    def take_log(self, output_path: str) -> str | None:
        """Return where the log of an output's job is; None when there was no job, or at the second call."""
        with self._guard:
            job_id = self._ids.pop(output_path, None)
        return None if job_id is None else f"job {job_id}"

    def terminate(self) -> bool:
        """Stop every job that is waited for, and every later one. A job that cannot be stopped is logged.

        Returns:
            True if there were any.
        """
        with self._guard:
            self._stopped = True
            handles = list(self._handles.values())
        for handle in handles:
            _terminate(handle)
        return bool(handles)

    def terminate_one(self, output_path: str) -> None:
        """Stop the job that makes an output, if there is one."""
        with self._guard:
            handle = self._handles.get(output_path)
        if handle is not None:
            logger.warning("stopping job %s: its step lost the lease on %s", handle.job_id, output_path)
            _terminate(handle)


def _wait(handle: JobHandle, progress: StepProgress, timeout: float | None) -> None:
    """Wait until a job succeeds, and report when it is queued, why, and when it runs; stop it after so many seconds."""
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
        _terminate(handle)
        raise StepTimedOut(
            f"job {handle.job_id}: still at work after its step's timeout of {timeout:g} s, and stopped"
        ) from None


def _queue_reason(handle: JobHandle) -> str | None:
    """Return why a job does not run yet, "" when that is not known; None for a job that runs or has ended."""
    from fray.client import TellsPendingReason
    from fray.types import JobStatus

    if handle.status() is not JobStatus.PENDING:
        return None
    return handle.pending_reason() if isinstance(handle, TellsPendingReason) else ""


def _terminate(handle: JobHandle) -> None:
    try:
        handle.terminate()
    except (MarinError, OSError) as error:
        logger.warning("could not stop job %s: %s", handle.job_id, error)


def check_returned(handle: JobHandle, replicas: int) -> None:
    """Check that the step's function has returned in every replica of a job that succeeded.

    Args:
        handle: The job.
        replicas: How many there are.

    Raises:
        JobFailed: It has not: a process ended before, with exit code 0.
    """
    from fray.errors import JobFailed as JobEndedEarly

    try:
        told = handle.result()
    except MarinError as error:
        # Gone with the cluster's log, as of a job that ended long before it was adopted.
        logger.warning("job %s succeeded; whether its function returned could not be seen: %s", handle.job_id, error)
        return
    values = told if replicas > 1 and isinstance(told, list) else [told]
    silent = [index for index, value in enumerate(values) if value != RETURNED]
    if silent:
        which = f"the process of replica {silent[0]}" if replicas > 1 else "its process"
        raise JobEndedEarly(
            f"job {handle.job_id}: {which} ended, with exit code 0, before the step's function returned (os._exit(0), "
            "os.exec, exit(0) in a C library?); one that is done returns",
            job_id=str(handle.job_id),
            exit_code=0,
        )


def remote_function(step: ExecutorStep[Any]) -> RemoteCallable[Any] | None:
    """Return the function that a step submits as a job; None when it runs in this process.

    A job is submitted for a `remote()` function, and for any function of a step that has resources or packages. The
    step's resources replace the function's; packages are added.
    """
    fn = step.fn
    if isinstance(fn, RemoteCallable):
        chosen: RemoteCallable[Any] = fn
    elif fn is not None and (step.resources is not None or step.pip_dependency_groups):
        chosen = remote(fn)
    else:
        return None
    groups = dict.fromkeys([*chosen.pip_dependency_groups, *(step.pip_dependency_groups or ())])
    return replace(chosen, resources=step.resources or chosen.resources, pip_dependency_groups=tuple(groups))


def tries_of(step: ExecutorStep[Any]) -> Tries:
    """Return how often a step is tried, and for how long: as the step says, else as its `remote()` function says."""
    said: list[ExecutorStep[Any] | RemoteCallable[Any]] = [step]
    if isinstance(step.fn, RemoteCallable):
        said.append(step.fn)
    retries = next((each.retries for each in said if each.retries is not None), None)
    delay = next((each.retry_delay for each in said if each.retry_delay is not None), None)
    timeout = next((each.timeout for each in said if each.timeout is not None), None)
    if retries is None and delay is None and timeout is None:
        return ONCE
    return Tries(retries or 0, delay or 0.0, timeout)


def check_function(step: ExecutorStep[Any]) -> None:
    """Check that a step's function is not a generator function.

    Raises:
        InvalidRequest: It is one; the message names the step.
    """
    fn = step.fn
    while isinstance(fn, (RemoteCallable, functools.partial)):
        fn = fn.fn if isinstance(fn, RemoteCallable) else fn.func
    if is_generator_function(fn):
        raise InvalidRequest(f"step {step.name!r}: {generator_problem(name_of(fn))}")


def check_job_region(step: ExecutorStep[Any], config: Any, output_path: str) -> None:
    """Check that there is one region for a step's job, as far as its paths tell.

    Args:
        step: The step.
        config: Its instantiated config.
        output_path: Its output path.

    Raises:
        RegionConflict: Its inputs and its output are in different regions.
    """
    remote_fn = remote_function(step)
    if remote_fn is not None:
        job_region(remote_fn, config, step_name=step.name, output_path=output_path)


def bind(
    step: ExecutorStep[Any],
    config: Any,
    output_path: str,
    prefix: str,
    jobs: LiveJobs,
    env_vars: Mapping[str, str] | None = None,
) -> Callable[[], bytes | None]:
    """Return a callable that does a step's work, here or in a job, and returns when it is done: see `StepTask.work`.

    Args:
        step: The step.
        config: Its instantiated config.
        output_path: Its output path.
        prefix: The run's prefix, which becomes the job's.
        jobs: The jobs of the run; the step's job is added while it is waited for.
        env_vars: Variables of the step's job, if it has one; those of its function win.
    """
    fn = step.fn
    if fn is None:
        return lambda: None
    remote_fn = remote_function(step)
    budget_gb = mirror_budget_gb(step.config)
    if remote_fn is None:

        def call_here() -> bytes | None:
            with speaking(step.name, output_path, step_log()):
                return call_step(fn, (config,), output_path, budget_gb)

        return call_here
    timeout = tries_of(step).timeout
    # The job of an output has one name in every run, which lets a run adopt the job of an earlier one.
    unique = hashlib.md5(output_path.encode(), usedforsecurity=False).hexdigest()
    name = job_name(remote_fn.name or step.name, unique)

    def run_job() -> None:
        lease = step_lease()
        log = step_log()
        # An in-process client's jobs print here.
        speaker = Speaker(step.name, output_path, log, replicas=remote_fn.resources.replicas)
        task = None
        if log is not None:
            if log.follows_unfinished:
                complete_former(name, lease, remote_fn.resources.replicas)
            task = LogTask(log.attempt, remote_fn.resources.replicas, log.is_fresh)
        with spoken_by(speaker):
            handle = submit_step(
                remote_fn,
                name,
                config,
                step_name=step.name,
                output_path=output_path,
                prefix=prefix,
                budget_gb=budget_gb,
                env_vars=env_vars,
                token=lease.token() if lease.output_path == output_path else None,
                log=task,
            )
        try:
            with (
                log_kept(log, handle, lease, remote_fn.resources.replicas) as kept,
                shown_output(handle, step.name, remote_fn.resources.replicas, log=kept),
            ):
                jobs.wait(handle, output_path, timeout)
        finally:
            end_speech(speaker)
        # Of several replicas only the first tells that its value is kept.
        has_returned = remote_fn.resources.replicas == 1 and bool(step_progress().kept_under)
        # A job that was adopted had another lease, or none that it could still write under.
        if lease.output_path == output_path and step_progress().kept_under != lease.token().worker_id:
            left = take_result_of_job(output_path, str(handle.job_id), lease)
            has_returned = has_returned or (left and remote_fn.resources.replicas == 1)
        if not has_returned:
            check_returned(handle, remote_fn.resources.replicas)

    return run_job
