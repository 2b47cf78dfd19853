"""Where a step's function runs: in this process, or as a job of its own."""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from marin.execution.config.step import ExecutorStep
from marin.execution.jobs.output import shown_output
from marin.execution.jobs.remote import RemoteCallable, job_name, job_region, remote, submit_step
from marin.execution.jobs.results import take_result_of_job
from marin.execution.jobs.step_call import call_step, mirror_budget_gb
from marin.execution.lease.step_lease import step_lease
from marin.execution.report.progress import StepProgress, step_progress
from marin.execution.report.step_output import speaking
from rigging.calls import generator_problem, is_generator_function, name_of
from rigging.errors import DeadlineExceeded, InvalidRequest, MarinError

if TYPE_CHECKING:
    from fray.client import JobHandle

logger = logging.getLogger(__name__)


# How often a job that is queued is looked at; one that runs is not.
_FIRST_LOOK_SECONDS = 0.1
_LAST_LOOK_SECONDS = 5.0


class LiveJobs:
    """The jobs that this run waits for, so that they can be stopped with it or one by one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._handles: dict[str, JobHandle] = {}
        self._ids: dict[str, str] = {}
        self._stopped = False

    def wait(self, handle: JobHandle, output_path: str = "") -> None:
        """Wait for the job that makes an output to succeed; it is terminated at once when the run has been stopped."""
        with self._guard:
            stopped = self._stopped
            self._handles[output_path] = handle
            self._ids[output_path] = str(handle.job_id)
        if stopped:
            handle.terminate()
        try:
            _wait(handle, step_progress())
        finally:
            with self._guard:
                self._handles.pop(output_path, None)

    def take_log(self, output_path: str) -> str | None:
        """Where the log of the job that made an output is; None when there was no job, and when asked again."""
        with self._guard:
            job_id = self._ids.pop(output_path, None)
        return None if job_id is None else f"job {job_id}"

    def terminate(self) -> bool:
        """Stop every job that is waited for, and every later one; one that cannot be stopped is named in the log.

        Returns:
            Whether there were any.
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


def _wait(handle: JobHandle, progress: StepProgress) -> None:
    """Wait for a job's success, and tell for how long it is queued, why, and when it runs."""
    pause = _FIRST_LOOK_SECONDS
    while (reason := _queue_reason(handle)) is not None:
        progress.queued(reason)
        try:
            handle.wait(timeout=pause)
        except DeadlineExceeded:
            if not handle.status().finished():
                pause = min(1.5 * pause, _LAST_LOOK_SECONDS)
                continue
            handle.wait()  # it has ended by now: in success, or by an error of its own, which may be such a one
        progress.started(ended=True)
        return
    progress.started()
    handle.wait()


def _queue_reason(handle: JobHandle) -> str | None:
    """Why a job does not run yet, "" when that is not known; None when it does."""
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


def remote_function(step: ExecutorStep[Any]) -> RemoteCallable[Any] | None:
    """What a step submits as a job: None when its function runs in this process.

    A `remote()` function, or any function of a step with resources or packages of its own. What the step says comes
    before what its function says.
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


def check_function(step: ExecutorStep[Any]) -> None:
    """Refuse a step whose function is a generator function.

    Raises:
        InvalidRequest: naming the step.
    """
    fn = step.fn
    while isinstance(fn, (RemoteCallable, functools.partial)):
        fn = fn.fn if isinstance(fn, RemoteCallable) else fn.func
    if is_generator_function(fn):
        raise InvalidRequest(f"step {step.name!r}: {generator_problem(name_of(fn))}")


def check_job_region(step: ExecutorStep[Any], config: Any, output_path: str) -> None:
    """Refuse a step whose job has no region to run in, as far as that is known before it is submitted.

    Raises:
        RegionConflict: Its inputs and its output are in different regions.
    """
    remote_fn = remote_function(step)
    if remote_fn is not None:
        job_region(remote_fn, config, step_name=step.name, output_path=output_path)


def bind(step: ExecutorStep[Any], config: Any, output_path: str, prefix: str, jobs: LiveJobs) -> Callable[[], Any]:
    """The call that does a step's work and returns when it is done."""
    fn = step.fn
    if fn is None:
        return lambda: None
    remote_fn = remote_function(step)
    budget_gb = mirror_budget_gb(step.config)
    if remote_fn is None:

        def call_here() -> Any:
            with speaking(step.name, output_path):
                return call_step(fn, (config,), output_path, budget_gb)

        return call_here
    # The hash keeps the name of one output's job the same from run to run, and apart from every other's.
    unique = hashlib.md5(output_path.encode(), usedforsecurity=False).hexdigest()
    name = job_name(remote_fn.name or step.name, unique)

    def run_job() -> None:
        lease = step_lease()
        handle = submit_step(
            remote_fn,
            name,
            config,
            step_name=step.name,
            output_path=output_path,
            prefix=prefix,
            budget_gb=budget_gb,
            token=lease.token() if lease.output_path == output_path else None,
        )
        with shown_output(handle, step.name, remote_fn.resources.replicas):
            jobs.wait(handle, output_path)
        if lease.output_path == output_path:
            take_result_of_job(output_path, str(handle.job_id), lease)

    return run_job
