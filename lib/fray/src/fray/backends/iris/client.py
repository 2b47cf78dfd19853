"""Jobs on an Iris cluster."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fray.actor import HostedActor
from fray.backends.common.actors import ActorRequest
from fray.backends.common.client import BaseClient
from fray.backends.iris.actor_main import serve_actor
from fray.backends.iris.actors import ACTOR_JOB_PREFIX, IrisActorGroup, IrisActors
from fray.backends.iris.convert import to_iris_plan
from fray.backends.iris.job_handle import IrisJobHandle, OuterIrisJobHandle
from fray.backends.iris.watch import JobWatcher
from fray.capabilities import BackendCapabilities
from fray.errors import JobAlreadyExists
from fray.protocols import Client, JobHandle, JobHours
from fray.types import (
    Entrypoint,
    EnvironmentConfig,
    JobRequest,
    ResourceConfig,
    Value,
    create_environment,
)
from iris.client import IrisClient, Job, find_workspace, use_grpc
from iris.client import JobAlreadyExists as IrisJobAlreadyExists
from iris.cluster.constraints import WellKnownAttribute
from iris.cluster.types import ExistingJobPolicy, JobState
from rigging.errors import Conflict, NotFound

logger = logging.getLogger(__name__)

_POLL_SECONDS = 30.0
_HOUR_MS = 3_600_000
_MANY_ROWS = 100_000

DEFAULT_ACTOR_RESOURCES = ResourceConfig.with_cpu(cpu=0.5, ram="1g")
"""Default resources of an actor, sized for coordination."""

CAPABILITIES = BackendCapabilities(
    lends_while_waiting=True,
    separate_processes=True,
    crash_codes=True,
    callable_logs=True,
    installs_packages=True,
    enforces_resources=True,
    failed_replicas_tolerated=True,
    shared_names=True,
    children_end_with_parent=True,
    jobs_outlive_client=True,
    actors=True,
    hosted_in_process=True,
    actor_restarts=True,
)


def connect(address: str | None) -> Client:
    """Create a client for the registry.

    Args:
        address: "host:port" of a controller. None means the cluster of the current job, or else the one that the `iris`
            command would use.

    Raises:
        Conflict: This process is a fork of one that already has such a client.
    """
    use_grpc("no Iris client can be made here")
    here = os.environ.get("IRIS_CONTROLLER_ADDRESS") if os.environ.get("IRIS_JOB_ID") else None
    target = address or here
    if target is None:
        return IrisBackend(IrisClient.connect())
    return IrisBackend(IrisClient.remote(target), inside_job=_is_here(target))


def _is_here(address: str) -> bool:
    """Return whether this process is a job of the cluster at that address."""
    here = os.environ.get("IRIS_CONTROLLER_ADDRESS") if os.environ.get("IRIS_JOB_ID") else None
    return here is not None and _bare(address) == _bare(here)


def _bare(address: str) -> str:
    return address.rpartition("://")[2]


class IrisBackend(BaseClient):
    """Submit jobs and actors to an Iris cluster. Inside an Iris job they become child jobs.

    Callables are pickled with cloudpickle. An exception becomes the text of JobFailed. A job receives the workspace of
    its request (default: the current directory, or the submitting job's workspace) and the rest of the transfer budget.
    Images are not supported.

    Args:
        client: The connection to the cluster. It is shut down with this client.
        inside_job: Whether this process is a job of that cluster.
    """

    def __init__(self, client: IrisClient, *, inside_job: bool = False) -> None:
        super().__init__()
        self._client = client
        self._inside_job = inside_job
        self._by_workspace: dict[str, IrisClient] = {}
        self._watcher = JobWatcher(self._poll_ended)
        self._actors = IrisActors(client)

    @property
    def capabilities(self) -> BackendCapabilities:
        return CAPABILITIES

    def submit(self, request: JobRequest[Value], adopt_existing: bool = True) -> JobHandle[Value]:
        """Submit a job (see `Client.submit`). On return, the cluster has stored it."""
        return self._handle_of(self._submit(request, adopt_existing).job_id)

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002
        """Stop the actors and disconnect. Jobs continue, whatever `wait` says; stop them by their handles."""
        self._owner.check("shutdown()")
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._actors.close()
        self._client.shutdown()

    def ended_job(self, name: str) -> JobHandle | None:
        """Return the last job of that name if it has ended (see `fray.client.FindsEndedJobs`)."""
        self._check_open(f"job {name!r}")
        handle = self._named(name)
        try:
            return handle if handle.status().finished() else None
        except NotFound:
            return None

    def accelerator_regions(self, variants: Sequence[str]) -> list[str]:
        """Return the regions that have, or may have, these variants (see `fray.client.TellsRegions`)."""
        regions: dict[str, set[str]] = {variant.lower(): set() for variant in variants}
        status = self._client.cluster_status(all_workers=True)
        groups = [group.attributes for group in status.scale_groups if group.max_slices > 0]
        for attributes in (*(worker.attributes for worker in status.workers), *groups):
            variant = attributes.get(WellKnownAttribute.DEVICE_VARIANT, "").lower()
            zone = attributes.get(WellKnownAttribute.ZONE, "")
            region = attributes.get(WellKnownAttribute.REGION) or zone.rpartition("-")[0]
            if variant in regions and region:
                regions[variant].add(region.lower())
        return sorted(set.intersection(*regions.values())) if regions else []

    def hours_of(self, job_ids: Sequence[str], since: float = 0.0) -> Mapping[str, Mapping[str, JobHours]]:
        """Return the used hours of jobs (see `fray.client.TellsHours`), from the cluster's table ledger."""
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in job_ids)
        found = self._client.query(
            "SELECT root_id, job_id, class, sum(core_seconds) / 3600, sum(chip_seconds) / 3600, sum(cost) FROM ledger "
            f"WHERE (root_id IN ({names}) OR job_id IN ({names})) AND start_ms > {since * 1000 - _HOUR_MS:.0f} "
            "GROUP BY 1, 2, 3",
            _MANY_ROWS,
        )
        hours: dict[str, dict[str, JobHours]] = {}
        for root_id, job_id, used_for, *amounts in found.rows:
            for name in {root_id, job_id} & {*job_ids}:
                uses = hours.setdefault(str(name), {})
                before = uses.get(str(used_for), JobHours(0.0, 0.0, None))
                cores, chips, cost = (None if amount is None else float(amount) for amount in amounts)
                total = before.cost if cost is None else cost + (before.cost or 0.0)
                uses[str(used_for)] = JobHours(
                    before.core_hours + (cores or 0), before.chip_hours + (chips or 0), total
                )
        return hours

    def _host_actor(self, request: ActorRequest) -> HostedActor:
        """Create an actor in this process.

        By default the actor is reachable only from this machine. Set IRIS_ACTOR_HOST to an address of this machine that
        others can reach.
        """
        self._check_open(f"actor {request.name!r}")
        return self._actors.host(request)

    def _start_actors(self, request: ActorRequest) -> IrisActorGroup:
        """Start actors as the tasks of one job."""
        self._check_open(f"actor {request.name!r}")
        self._actors.refuse_hosted(request.name)
        ref, config = self._actors.ref(request), request.config
        call = (ref, request.cls, request.args, request.kwargs, config.max_concurrency)
        job_request = JobRequest(
            f"{ACTOR_JOB_PREFIX}{request.name}",
            Entrypoint.from_callable(serve_actor, call),
            resources=request.resources or DEFAULT_ACTOR_RESOURCES,
            replicas=request.count,
            max_retries_failure=config.max_restarts or 0,
            max_task_failures=request.count - 1,  # one that fails for good leaves the others alone
        )
        job = self._submit(job_request, adopt_existing=False)
        return self._actors.follow(job.job_id, ref, request.count)

    def _submit(self, request: JobRequest, adopt_existing: bool) -> Job:
        self._check_open(f"job {request.name!r}")
        environment = self._environment_of(request)
        plan = to_iris_plan(request, environment)
        existing = ExistingJobPolicy.ADOPT if adopt_existing else ExistingJobPolicy.FAIL
        try:
            return self._client_for(environment.workspace).submit_plan(plan, existing=existing)
        except IrisJobAlreadyExists as error:
            raise JobAlreadyExists(str(error), self._named(request.name), job_name=request.name) from None

    def _environment_of(self, request: JobRequest) -> EnvironmentConfig:
        return request.environment or create_environment()

    def _named(self, name: str) -> "IrisJobHandle":
        """Return the handle of a job that this client submitted, by name."""
        return self._handle_of(f"{self._client.full_name_prefix()}/{name}")

    def _handle_of(self, job_id: str) -> "IrisJobHandle":
        # Following a job shows the output of its child jobs too.
        kind = IrisJobHandle if self._inside_job else OuterIrisJobHandle
        return kind(self._client, job_id, self._watcher, self._check_open)

    def _check_open(self, what: str) -> None:
        self._owner.check(what)
        if self._closed:
            raise Conflict(f"{what}: this Iris client has been shut down; make a new one")

    def _client_for(self, workspace: str | None) -> IrisClient:
        """Return the client that submits with this workspace. All of them share one connection."""
        if self._inside_job or workspace is None:
            return self._client
        path = os.path.abspath(workspace)
        with contextlib.suppress(FileNotFoundError):  # the current directory may have been removed
            if path == os.getcwd():
                # As `iris job run` does: the project that lies around it, where what it needs is said.
                path = str(find_workspace(Path(path)))
        with self._lock:
            if path not in self._by_workspace:
                self._by_workspace[path] = self._client.with_workspace(path)
            return self._by_workspace[path]

    def _poll_ended(self, job_ids: Sequence[str]) -> Mapping[str, bool]:
        statuses, _ = self._client.poll_jobs(job_ids, any=True, seconds=_POLL_SECONDS)
        return {status.job_id: status.state is JobState.SUCCEEDED for status in statuses if status.is_terminal}


class FrayIrisClient(IrisBackend):
    """A client for the controller at an address, with the constructor of fray's predecessor.

    Args:
        controller_address: "host:port", with or without a scheme.
        workspace: The workspace of jobs whose environment names none. Defaults to the current directory.
        bundle_id: The bundle of the current job. Any other value is ignored with a warning.
    """

    def __init__(
        self, controller_address: str, workspace: Path | str | None = None, bundle_id: str | None = None
    ) -> None:
        use_grpc("no Iris client can be made here")
        super().__init__(IrisClient.remote(controller_address, workspace), inside_job=_is_here(controller_address))
        self._workspace = None if workspace is None else os.path.abspath(workspace)
        if bundle_id is not None and bundle_id != os.environ.get("IRIS_BUNDLE_DIGEST"):
            logger.warning(
                "FrayIrisClient: bundle_id %r is not used: it is not that of the job this runs in; jobs get the "
                "workspace of their environment",
                bundle_id,
            )

    @classmethod
    def from_iris_client(cls, iris_client: IrisClient) -> "FrayIrisClient":
        """Wrap an Iris client, which is shut down with this one."""
        made = cls.__new__(cls)
        inside_job = "IRIS_JOB_ID" in os.environ and _is_here(iris_client.connection.controller_address().address)
        IrisBackend.__init__(made, iris_client, inside_job=inside_job)
        made._workspace = None
        return made

    def _environment_of(self, request: JobRequest) -> EnvironmentConfig:
        environment = super()._environment_of(request)
        named = environment.workspace
        if self._workspace is None or environment.docker_image is not None:
            return environment
        if named is None or os.path.abspath(named) == os.getcwd():
            return dataclasses.replace(environment, workspace=self._workspace)
        return environment
