"""Jobs on an Iris cluster."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fray.actor import ActorGroup, ActorHandle
from fray.backends.iris_resources import to_fray_status, to_iris_request
from fray.backends.iris_watch import JobWatcher
from fray.capabilities import BackendCapabilities
from fray.client import Client, JobHandle
from fray.errors import JobAlreadyExists, JobFailed
from fray.types import JobRequest, JobStatus, create_environment
from iris.client import IrisClient
from iris.client import JobAlreadyExists as IrisJobAlreadyExists
from rigging.errors import Conflict, InvalidRequest

_POLL_SECONDS = 30.0

CAPABILITIES = BackendCapabilities(
    separate_processes=True,
    callable_logs=True,
    raises_own_exceptions=False,
    installs_packages=True,
    enforces_resources=True,
    replicas_retried_together=False,
    shared_names=True,
    jobs_outlive_client=True,
    forked_client=True,
    actors=False,
    actor_restarts=False,
)


def connect(address: str | None) -> Client:
    """The registry's way in.

    Args:
        address: "host:port" of a controller; None for the cluster of the job this runs in, else the one that the
            `iris` command would use.
    """
    here = os.environ.get("IRIS_CONTROLLER_ADDRESS") if os.environ.get("IRIS_JOB_ID") else None
    target = address or here
    if target is None:
        return IrisBackend(IrisClient.connect())
    return IrisBackend(IrisClient.remote(target), inside_job=here is not None and _bare(target) == _bare(here))


def _bare(address: str) -> str:
    return address.rpartition("://")[2]


class IrisBackend:
    """Submits jobs to an Iris cluster; inside an Iris job they become child jobs of that job.

    Callables are shipped by cloudpickle, and what a failed one raised comes back as the text of JobFailed. The
    workspace of a request (by default the current directory) goes along with it; inside a job, that job's own does.
    Actors and images are not offered.

    Args:
        client: How the cluster is reached; shut down with this client.
        inside_job: Whether this process is a job of that cluster.
    """

    def __init__(self, client: IrisClient, *, inside_job: bool = False) -> None:
        self._client = client
        self._inside_job = inside_job
        self._lock = threading.Lock()
        self._by_workspace: dict[str, IrisClient] = {}
        self._watcher = JobWatcher(self._poll_ended)
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def submit(self, request: JobRequest, adopt_existing: bool = True) -> JobHandle:
        """Submit a job (see `Client.submit`); when this returns the cluster has stored it."""
        if self._closed:
            raise Conflict(f"job {request.name!r}: this Iris client has been shut down; make a new one")
        environment = request.environment or create_environment()
        iris = to_iris_request(request, environment)
        try:
            job = self._client_for(environment.workspace).submit(
                iris.entrypoint,
                iris.name,
                iris.resources,
                iris.environment,
                constraints=iris.constraints,
                coscheduling=iris.coscheduling,
                replicas=iris.replicas,
                max_retries_failure=iris.max_retries_failure,
                max_retries_preemption=iris.max_retries_preemption,
                adopt_existing=adopt_existing,
            )
        except IrisJobAlreadyExists as error:
            raise JobAlreadyExists(str(error)) from None
        return IrisJobHandle(self._client, job.job_id, self._watcher)

    # The protocol's parameters beyond the name do not matter to a refusal.
    def host_actor(self, cls: type[Any], *_: Any, name: str, **__: Any) -> ActorHandle:  # noqa: ARG002
        _refuse_actor(name)

    def create_actor(self, cls: type[Any], *_: Any, name: str, **__: Any) -> ActorHandle:  # noqa: ARG002
        _refuse_actor(name)

    def create_actor_group(self, cls: type[Any], *_: Any, name: str, **__: Any) -> ActorGroup:  # noqa: ARG002
        _refuse_actor(name)

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002
        """Let go of the cluster. The jobs there go on, whatever `wait` says: stop them by their handles."""
        self._closed = True
        self._client.shutdown()

    def _client_for(self, workspace: str | None) -> IrisClient:
        """The client whose jobs come with this workspace; all share one connection."""
        if self._inside_job or workspace is None:
            return self._client
        path = os.path.abspath(workspace)
        with self._lock:
            if path not in self._by_workspace:
                self._by_workspace[path] = self._client.with_workspace(path)
            return self._by_workspace[path]

    def _poll_ended(self, job_ids: Sequence[str]) -> set[str]:
        statuses, _ = self._client.poll_jobs(job_ids, any=True, seconds=_POLL_SECONDS)
        return {status.job_id for status in statuses if status.is_terminal}


class IrisJobHandle:
    """A job on an Iris cluster."""

    def __init__(self, client: IrisClient, job_id: str, watcher: JobWatcher) -> None:
        self._client = client
        self._job_id = job_id
        self._watcher = watcher

    @property
    def job_id(self) -> str:
        return self._job_id

    def status(self) -> JobStatus:
        return to_fray_status(self._client.status(self._job_id).state)

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Wait for the end (see `JobHandle.wait`); inside a job its cpu is lent to others meanwhile."""
        (ended,) = self._client.wait_jobs([self._job_id], timeout=timeout)
        status = to_fray_status(ended.state)
        if raise_on_failure and status is not JobStatus.SUCCEEDED:
            error = f": {ended.error}" if ended.error else ""
            raise JobFailed(
                f"job {self._job_id} {ended.state.word} (its log: iris job logs {self._job_id}){error}",
                job_id=self._job_id,
                exit_code=-ended.exit_signal if ended.exit_signal else ended.exit_code,
            )
        return status

    def terminate(self) -> None:
        """Stop the job and its children; the decision is final when this returns."""
        self._client.terminate(self._job_id)

    def logs(self) -> str:
        """What all tasks have written so far, in the order of the cluster's log."""
        lines = self._client.fetch_task_logs(self._job_id)
        return "".join(line.text if line.partial else line.text + "\n" for line in lines)

    def add_done_callback(self, callback: Callable[[JobHandle], object]) -> None:
        self._watcher.watch(self._job_id, lambda: callback(self))


def _refuse_actor(name: str) -> NoReturn:
    raise InvalidRequest(
        f"actor {name!r}: the Iris backend runs jobs only; use a LocalClient for actors "
        "(`with set_current_client(LocalClient())`)"
    )
