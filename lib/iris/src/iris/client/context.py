"""The context of the current job, for code that runs in it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from iris.client.client import IrisClient
from iris.client.endpoints import EndpointRegistry, EndpointResolver
from iris.client.job_env import JobEnv, job_env
from iris.cluster.job_name import JobName
from rigging.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class IrisContext:
    """The task's identity and access to the cluster."""

    job: JobEnv
    client: IrisClient = field(repr=False)

    @property
    def job_id(self) -> str:
        """The job's id, "/user/job"."""
        return self.job.job_id

    @property
    def task_id(self) -> str:
        """The task's id, "/user/job/0"."""
        return self.job.task_id

    @property
    def task_attempt(self) -> int:
        """The number of this attempt, from 0."""
        return self.job.task_attempt

    @property
    def worker_id(self) -> str:
        """The id of the task's worker."""
        return self.job.worker_id

    @property
    def ports(self) -> dict[str, int]:
        """The task's allocated ports, by lowercase name."""
        return dict(self.job.ports)

    def get_port(self, name: str) -> int:
        """Return an allocated port. Raise NotFound for a name that the job did not request."""
        port = self.job.ports.get(name.lower())
        if port is None:
            known = ", ".join(self.job.ports) or "none"
            raise NotFound(f"task {self.task_id} has no port {name!r}; it has {known} (submit with ports=[{name!r}])")
        return port

    @property
    def namespace(self) -> str:
        """The name of the root job. Tasks of all its jobs share this namespace."""
        return JobName.known(self.job_id).namespace

    @property
    def parent_job_id(self) -> JobName | None:
        """The job that submitted this one; None for a root job."""
        return JobName.known(self.job_id).parent

    def mark_returned(self) -> None:
        """Report to the worker that the task's callable has returned, before the process exits by `os._exit(0)`.

        Otherwise a process that exits with 0 before the callable returned counts as a failure.
        """
        path = os.environ.get("IRIS_ERROR_FILE")  # as `iris.worker.callable_main.write_result` has it
        if path:
            with open(f"{path}.value", "wb"):
                pass

    @property
    def registry(self) -> EndpointRegistry:
        """Registers addresses of this attempt under names, for other tasks."""
        return EndpointRegistry(self.client.connection, self.job)

    @property
    def resolver(self) -> EndpointResolver:
        """Finds endpoints that tasks registered: first in this job, then in its ancestors."""
        return EndpointResolver(self.client.connection, self.job_id)


_lock: Final = threading.Lock()
_contexts: Final[dict[tuple[int, str], IrisContext]] = {}


_chosen: Final[ContextVar[IrisContext | None]] = ContextVar("iris_context", default=None)


@contextmanager
def iris_ctx_scope(context: IrisContext) -> Iterator[IrisContext]:
    """Make `iris_ctx` and `get_iris_ctx` return `context` within the `with` block."""
    token = _chosen.set(context)
    try:
        yield context
    finally:
        _chosen.reset(token)


def get_iris_ctx() -> IrisContext | None:
    """Return the context of this task; None outside a job. Every call in a process returns the same object."""
    if (chosen := _chosen.get()) is not None:
        return chosen
    job = job_env(os.environ)
    if job is None:
        return None
    # A forked child must not share its parent's channel.
    key = (os.getpid(), job.attempt_id)
    with _lock:
        if key not in _contexts:
            _contexts[key] = IrisContext(job, IrisClient.remote(job.controller_address))
        return _contexts[key]


def iris_ctx() -> IrisContext:
    """Return the context of this task. Raise Conflict outside a job."""
    context = get_iris_ctx()
    if context is None:
        raise Conflict("this process is not a task of an iris job (IRIS_JOB_ID is not set); run it with `iris job run`")
    return context
