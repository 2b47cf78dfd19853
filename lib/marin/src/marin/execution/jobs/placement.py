"""Decide where a step's function runs: in this process, or as a separate job."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from marin.execution.config.step import ExecutorStep
from marin.execution.config.tries import ONCE, Tries
from marin.execution.jobs.live_jobs import LiveJobs
from marin.execution.jobs.output import shown_output
from marin.execution.jobs.remote import RemoteCallable, job_name, job_region, remote, submit_step
from marin.execution.jobs.results import take_result_of_job
from marin.execution.jobs.step_call import RETURNED, call_step, mirror_budget_gb
from marin.execution.lease.step_lease import StepLease, step_lease
from marin.execution.log.kept_log import complete_former, log_kept
from marin.execution.log.own import LogTask
from marin.execution.log.step_log import StepLog, step_log
from marin.execution.log.step_output import Speaker, end_speech, speaking, spoken_by
from marin.execution.report.progress import step_progress
from rigging.errors import InvalidRequest, MarinError
from rigging.process.calls import generator_problem, is_generator_function, name_of

if TYPE_CHECKING:
    from fray.client import JobHandle

logger = logging.getLogger(__name__)


def check_returned(handle: JobHandle, replicas: int) -> None:
    """Check that the step's function has returned in every replica of a successful job.

    Args:
        handle: The job.
        replicas: The number of replicas.

    Raises:
        JobFailed: A process ended with exit code 0 before the function returned.
    """
    from fray.errors import JobFailed as JobEndedEarly

    try:
        told = handle.result()
    except MarinError as error:
        # Gone with the cluster's log, as of a job that ended long before it was adopted.
        logger.warning("job %s succeeded; whether its function returned is unknown: %s", handle.job_id, error)
        return
    values = told if replicas > 1 and isinstance(told, list) else [told]
    silent = [index for index, value in enumerate(values) if value != RETURNED]
    if silent:
        which = f"the process of replica {silent[0]}" if replicas > 1 else "its process"
        raise JobEndedEarly(
            f"job {handle.job_id}: {which} ended, with exit code 0, before the step's function returned (os._exit(0), "
            "os.exec, exit(0) in a C library?); return from it instead",
            job_id=str(handle.job_id),
            exit_code=0,
        )


def remote_function(step: ExecutorStep[Any]) -> RemoteCallable[..., Any] | None:
    """Return the function that a step submits as a job; None if it runs in this process.

    A job is submitted for a `remote()` function, and for any step with resources or packages. The step's resources
    replace the function's; packages are added.
    """
    fn = step.fn
    if isinstance(fn, RemoteCallable):
        chosen: RemoteCallable[..., Any] = fn
    elif fn is not None and (step.resources is not None or step.pip_dependency_groups):
        chosen = remote(fn)
    else:
        return None
    groups = dict.fromkeys([*chosen.pip_dependency_groups, *(step.pip_dependency_groups or ())])
    return replace(chosen, resources=step.resources or chosen.resources, pip_dependency_groups=tuple(groups))


def tries_of(step: ExecutorStep[Any]) -> Tries:
    """Return the retries and timeout of a step, or else of its `remote()` function."""
    said: list[ExecutorStep[Any] | RemoteCallable[..., Any]] = [step]
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
        InvalidRequest: The function is a generator function. The message names the step.
    """
    fn = step.fn
    while isinstance(fn, (RemoteCallable, functools.partial)):
        fn = fn.fn if isinstance(fn, RemoteCallable) else fn.func
    if is_generator_function(fn):
        raise InvalidRequest(f"step {step.name!r}: {generator_problem(name_of(fn))}")


def check_job_region(step: ExecutorStep[Any], config: Any, output_path: str) -> None:
    """Check that a step's paths allow a single region for its job.

    Args:
        step: The step.
        config: Its instantiated config.
        output_path: Its output path.

    Raises:
        RegionConflict: Its inputs and output are in different regions.
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
    """Return a callable that runs a step's function to its end, in this process or as a job (see `StepTask.work`).

    Args:
        step: The step.
        config: Its instantiated config.
        output_path: Its output path.
        prefix: The run's prefix, which becomes the job's.
        jobs: The jobs of the run. The step's job is included while the run waits for it.
        env_vars: Variables of the step's job, if it has one. Those of its function win.
    """
    if step.fn is None:
        return lambda: None
    remote_fn = remote_function(step)
    if remote_fn is None:
        return functools.partial(_call_here, step, config, output_path)
    return _StepJob(step, config, output_path, prefix, jobs, env_vars, remote_fn).run


def _call_here(step: ExecutorStep[Any], config: Any, output_path: str) -> bytes | None:
    assert step.fn is not None
    with speaking(step.name, output_path, step_log()):
        return call_step(step.fn, (config,), output_path, mirror_budget_gb(step.config))


@dataclass(frozen=True, slots=True)
class _StepJob:
    """A step's function as a job: submitted, or adopted if an earlier run's job is still making the output."""

    step: ExecutorStep[Any]
    config: Any
    output_path: str
    prefix: str
    jobs: LiveJobs
    env_vars: Mapping[str, str] | None
    remote_fn: RemoteCallable[..., Any]

    def run(self) -> None:
        """Submit the job, wait for its end, and ensure that its log is complete and its return value stored."""
        lease, log, replicas = step_lease(), step_log(), self.remote_fn.resources.replicas
        # An in-process client's jobs print here.
        speaker = Speaker(self.step.name, self.output_path, log, replicas=replicas)
        with spoken_by(speaker):
            handle = self._submit(lease, log)
        try:
            with (
                log_kept(log, handle, lease, replicas) as kept,
                shown_output(handle, self.step.name, replicas, log=kept),
            ):
                self.jobs.wait(handle, self.output_path, tries_of(self.step).timeout)
        finally:
            end_speech(speaker)
        # Of several replicas only the first tells that its value is kept.
        if not self._has_value(handle, lease) or replicas > 1:
            check_returned(handle, replicas)

    def _submit(self, lease: StepLease, log: StepLog | None) -> JobHandle:
        # The job of an output has one name in every run, by which the client gives the live job of an earlier one.
        unique = hashlib.md5(self.output_path.encode(), usedforsecurity=False).hexdigest()
        name = job_name(self.remote_fn.name or self.step.name, unique)
        task, replicas = None, self.remote_fn.resources.replicas
        if log is not None:
            if log.follows_unfinished:
                complete_former(name, lease, replicas)
            task = LogTask(log.attempt, replicas, log.is_fresh)
        return submit_step(
            self.remote_fn,
            name,
            self.config,
            step_name=self.step.name,
            output_path=self.output_path,
            prefix=self.prefix,
            budget_gb=mirror_budget_gb(self.step.config),
            env_vars=self.env_vars,
            token=lease.token() if lease.output_path == self.output_path else None,
            log=task,
        )

    def _has_value(self, handle: JobHandle, lease: StepLease) -> bool:
        """Take the value that an adopted job left. Return whether a value is stored, by this run or by the job."""
        kept_under = step_progress().kept_under
        # A job that was adopted had another lease, or none that it could still write under.
        if lease.output_path == self.output_path and kept_under != lease.token().worker_id:
            return take_result_of_job(self.output_path, str(handle.job_id), lease) or bool(kept_under)
        return bool(kept_under)


def infer_tpu_variant_regions_from_iris(variants: Sequence[str]) -> list[str] | None:
    """Return the sorted regions in which the current cluster has every one of these variants.

    Args:
        variants: Such as "v5p-8".

    Returns:
        The regions; None without a cluster, or if the cluster does not report regions.
    """
    from fray.client import TellsRegions
    from fray.current_client import current_client

    client = current_client()
    return sorted(client.accelerator_regions(variants)) if isinstance(client, TellsRegions) else None
