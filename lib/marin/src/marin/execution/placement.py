"""Where a step's function runs: in this process, or as a job of its own."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from marin.execution.remote import PREFIX_VARIABLE, RemoteCallable, job_name, remote, submit
from marin.execution.step import ExecutorStep
from rigging.errors import MarinError

if TYPE_CHECKING:
    from fray.client import JobHandle

logger = logging.getLogger(__name__)


class LiveJobs:
    """The jobs that this run waits for, so that they can be stopped with it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._handles: list[JobHandle] = []
        self._stopped = False

    def wait(self, handle: JobHandle) -> None:
        """Wait for a job to succeed; it is terminated at once when the run has been stopped."""
        with self._guard:
            stopped = self._stopped
            self._handles.append(handle)
        if stopped:
            handle.terminate()
        try:
            handle.wait()
        finally:
            with self._guard:
                self._handles.remove(handle)

    def terminate(self) -> None:
        """Stop every job that is waited for, and every later one; one that cannot be stopped is named in the log."""
        with self._guard:
            self._stopped = True
            handles = list(self._handles)
        for handle in handles:
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


def bind(step: ExecutorStep[Any], config: Any, output_path: str, prefix: str, jobs: LiveJobs) -> Callable[[], Any]:
    """The call that does a step's work and returns when it is done."""
    fn = step.fn
    if fn is None:
        return lambda: None
    remote_fn = remote_function(step)
    if remote_fn is None:
        return lambda: fn(config)
    # The hash keeps the name of one output's job the same from run to run, and apart from every other's.
    unique = hashlib.md5(output_path.encode(), usedforsecurity=False).hexdigest()
    name = job_name(remote_fn.name or step.name, unique)
    return lambda: jobs.wait(submit(remote_fn, name, (config,), env_vars={PREFIX_VARIABLE: prefix}))
