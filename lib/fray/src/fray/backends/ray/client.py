"""Jobs and actors on a Ray cluster."""

import atexit
import contextlib
import itertools
import logging
import os
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray

from fray.actor import HostedActor
from fray.backends.common.actors import ActorRequest
from fray.backends.common.client import BaseClient
from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray.actor import RayActorGroup
from fray.backends.ray.actors import RayActors
from fray.backends.ray.capabilities import CAPABILITIES
from fray.backends.ray.functions import host_needs, name_of_function, result_of, wait_and_print, with_output_reported
from fray.backends.ray.jobs.canceller import TaskCanceller
from fray.backends.ray.jobs.completion import CompletionWatcher
from fray.backends.ray.jobs.gang import GangJob
from fray.backends.ray.jobs.job import Plan, RayJob, stop_all
from fray.backends.ray.jobs.launcher import TaskLauncher
from fray.backends.ray.jobs.slices import GangPlacer
from fray.backends.ray.payload import NAMESPACE_ENV, PARENT_ENV, JobEnvironment, TaskPayload, Work, task_name
from fray.backends.ray.resources import (
    ResolvedEnvironment,
    host_resources,
    resolve_environment,
    shortfall,
    task_options,
)
from fray.backends.ray.sending import dumps
from fray.backends.ray.session_link import SessionLink
from fray.backends.ray.worker import entry
from fray.capabilities import BackendCapabilities
from fray.errors import JobAlreadyExists
from fray.protocols import Client, JobHandle
from fray.types import JobRequest, ResourceConfig, TpuConfig, Value
from rigging.errors import Conflict, InvalidRequest
from rigging.filesystem.budget import budget_environment
from rigging.topology import get_tpu_topology

logger = logging.getLogger(__name__)

ELASTIC_ENV = "FRAY_RAY_ELASTIC"
_LARGE_BYTES = 100_000
_BLOCK_SECONDS = 1.0
_CLOSE_SECONDS = 10.0


def connect(address: str | None) -> Client:
    """Create a client, or return the client of the job that runs in this process.

    Args:
        address: "host:port" of a Ray client server (`ray://host:port`). None means the first of these that exists: the
            cluster of the current job, the cluster of RAY_ADDRESS, a cluster running on this machine, a new cluster for
            this process.
    """
    ray_cluster.refuse_forks("the Ray backend")
    present = entry.current_job_client()
    if address is None and present is not None:
        return present
    return RayClient.connect(None if address is None else f"ray://{address}", namespace=os.environ.get(NAMESPACE_ENV))


class RayClient(BaseClient):
    """Run jobs as Ray tasks, one per replica, and actors as Ray actors.

    Programs run as subprocesses of such a task. Job names are scoped to the client and the submitting job: children of
    two parents may share a name. The owner keeps the output of finished jobs; the client's session, a small actor,
    keeps the output of running ones. Create a client with `connect`.

    Args:
        namespace: The Ray namespace of the session.
        address: The cluster that this process is connected to.
        owns_session: Whether the session and all its actors end with this client.
        elastic: See `connect`.
    """

    def __init__(self, namespace: str, address: str, *, owns_session: bool, elastic: bool) -> None:
        super().__init__()
        self._namespace = namespace
        self._owns_session = owns_session
        self._elastic = elastic
        self._address = address
        self.completions = CompletionWatcher()
        self.sessions = SessionLink(self._namespace)
        self.canceller = TaskCanceller(self.sessions.ask)
        self.parent = os.environ.get(PARENT_ENV, "")
        self._numbers = itertools.count(1)
        self._serial = uuid.uuid4().hex[:6]
        self._live: dict[tuple[str, str], RayJob] = {}
        self._launcher = TaskLauncher()
        self._feasible: set[tuple[tuple[str, float], ...]] = set()
        self._actors = RayActors(self._namespace, address, self.sessions)

    @classmethod
    def connect(
        cls, address: str | None = None, namespace: str | None = None, elastic: bool | None = None
    ) -> "RayClient":
        """Connect this process to Ray, unless it is connected, and create a client.

        Args:
            address: An address for `ray.init`; ignored if this process is already connected.
            namespace: The Ray namespace of the session; None for a new one.
            elastic: Whether larger nodes may join the cluster. If so, a job that fits on no current node stays pending
                with a warning; otherwise it is refused. None reads FRAY_RAY_ELASTIC ("0" or "1"; default 1).

        Raises:
            Unavailable: No cluster answers.
        """
        owned = namespace or f"fray-{uuid.uuid4().hex[:12]}"
        ray_cluster.ensure_connected(address, owned)
        if elastic is None:
            elastic = os.environ.get(ELASTIC_ENV, "1") != "0"
        client = cls(owned, ray.get_runtime_context().gcs_address, owns_session=namespace is None, elastic=elastic)
        if namespace is None:
            # Ray would kill them without a word when the process has ended.
            atexit.register(_tell_actors, weakref.ref(client))
        return client

    @property
    def capabilities(self) -> BackendCapabilities:
        return CAPABILITIES

    def submit(self, request: JobRequest[Value], adopt_existing: bool = True) -> JobHandle[Value]:
        """Start a job (see `Client.submit`). Its name is free again once it has ended."""
        self._owner.check(f"job {request.name!r}")
        resources = self._chosen(request.resources)
        around = resolve_environment(request.environment, resources, budget_environment(), request.name)
        taken = host_resources(resources)
        self._check_feasible(f"job {request.name!r}", taken)
        plan = self._plan(request, resources, taken, around)
        key = (self.parent, request.name)
        with self._lock:
            self._check_open(f"job {request.name!r}")
            existing = self._live.get(key)
            if existing is None:
                job = self._live[key] = self._make(request, resources, plan)
        if existing is not None:
            if adopt_existing:
                return existing
            raise JobAlreadyExists(
                f"job {request.name!r} is {existing.status()} as {existing.job_id}; choose another name, "
                "wait for its end, or submit with adopt_existing=True",
                existing,
                job_name=request.name,
            )
        try:
            job.start()
        except BaseException as error:
            job.give_up("it could not be started", error)
            raise
        return job

    def run_remote_function(self, fn: Any, args: Sequence[Any]) -> Any:
        """Run a function that is already `@ray.remote`, with its decorator's options, and return its result.

        This is for old experiments whose steps are remote functions. The call is not a fray job and has no log: its
        output is printed here. On the function's nodes, Ray installs the packages of the calling job, which requires
        pip there.

        Raises:
            InvalidRequest: The function fits on no node, and FRAY_RAY_ELASTIC=0 says that none will join.
            JobFailed: The function failed for another reason than an exception.
            BaseException: The function's own exception.
        """
        self._owner.check("run_remote_function()")
        name = name_of_function(fn)
        needs = host_needs(fn)
        if needs is not None:
            self._check_feasible(f"function {name!r}", needs)
        packages = entry.current_job_packages()
        environment = JobEnvironment(self._namespace, self._address, {}, None, packages, uses_tpu=False)
        work = Work(f"ray-{self._serial}-{next(self._numbers)}-{name}", 1, 0, environment)
        reporting = with_output_reported(fn, work)
        if reporting is None:
            logger.warning("the output of function %r stays in the logs of Ray's workers", name)
        else:
            self.sessions.get()
        run = reporting or fn
        if packages:
            run = run.options(runtime_env={"pip": {"packages": list(packages), "pip_check": False}})
        if getattr(fn, "_default_options", {}).get("num_returns") == 0:
            run = run.options(num_returns=1)  # else there is nothing to wait for
        ref = run.remote(*args)
        return result_of(ref, name) if reporting is None else wait_and_print(ref, work, self.sessions)

    def shutdown(self, wait: bool = True) -> None:
        """Refuse new work, wait for the jobs (without `wait`: stop them), then end the actors and the session.

        Without `wait`, this method still waits for the stopped jobs to end, up to ten seconds for a program that
        ignores SIGTERM. The process stays connected to Ray for other clients; `ray.shutdown()` disconnects it.
        """
        self._owner.check("shutdown()")
        with self._lock:
            already, self._closed = self._closed, True
            live = list(self._live.values())
        if wait:
            for job in live:
                job.wait(raise_on_failure=False)
        else:
            stop_all(live)
        if already or not ray.is_initialized():
            return
        self.completions.close()
        self.canceller.close()
        self._actors.close()
        self._end_session()

    def end_actors(self) -> None:
        """End the actors that this process created, if it exits without `shutdown`."""
        if self._closed or not self._owner.here or not ray.is_initialized():
            return
        self._actors.close()
        if self._actors.groups:
            self._end_session()

    def block_on(self, handles: Sequence[JobHandle], timeout: float | None) -> None:
        """Block in Ray until one of the jobs may have ended, or about `timeout` seconds.

        Ray lends a job's CPU to its children only while the job's main thread blocks in Ray.
        """
        jobs = [handle for handle in handles if isinstance(handle, RayJob) and not handle.ended]
        refs = [ref for job in jobs for ref in job.refs()]
        left = _BLOCK_SECONDS if timeout is None else min(timeout, _BLOCK_SECONDS)
        if refs:
            self.completions.block(refs, left)
        # What has ended may be about to be settled by another thread, or to be tried again.
        if jobs:
            jobs[0].wait_done(0.002 if refs else min(left, 0.02))

    def ask_session_if_up(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask the session; return None if it cannot answer now (see `SessionLink.ask_if_up`)."""
        if self._closed or not ray.is_initialized():
            return None
        return self.sessions.ask_if_up(question, timeout)

    def known_session(self) -> Any:
        """Return the session, if any process of this client has started it."""
        return self.sessions.known() if ray.is_initialized() else None

    def launch(
        self, job: RayJob, attempt: int, replica: int, options: dict[str, Any], env: Mapping[str, str] | None = None
    ) -> Any:
        """Start the Ray task of one replica. Called by jobs.

        Args:
            job: The job.
            attempt: Number of its attempt, from 0.
            replica: Index of the replica.
            options: Options for the Ray task.
            env: Extra variables of this replica.
        """
        payload = job.plan.payload.with_env(env) if env else job.plan.payload
        return self._launcher.launch(payload, task_name(job.job_id, attempt, replica), options)

    def forget(self, job: RayJob) -> None:
        """Free the name of an ended job. Called by jobs."""
        with self._lock:
            if self._live.get(key := (job.parent, job.request.name)) is job:
                del self._live[key]

    def _make(self, request: JobRequest, resources: ResourceConfig, plan: Plan) -> RayJob:
        job_id = f"ray-{self._serial}-{next(self._numbers)}-{request.name}"
        alone = request.replica_count == 1
        if alone and (not isinstance(resources.device, TpuConfig) or _hosts(resources) == 1):
            return RayJob(self, job_id, request, plan)
        return GangJob(self, job_id, request, plan, GangPlacer(request.name, resources, request.replica_count))

    def _plan(
        self, request: JobRequest, resources: ResourceConfig, taken: Mapping[str, float], around: ResolvedEnvironment
    ) -> Plan:
        call, program = request.entrypoint.callable_entrypoint, request.entrypoint.binary_entrypoint
        # As a tuple a call is pickled in two thirds of the time.
        target = program if call is None else (call.callable, call.args, call.kwargs)
        payload: Any = dumps(target, f"job {request.name!r}")
        if len(payload) > _LARGE_BYTES:
            payload = ray.put(payload)
        options = task_options(taken)
        if around.runtime_env is not None:
            options["runtime_env"] = around.runtime_env
        uses_tpu = isinstance(resources.device, TpuConfig)
        environment = JobEnvironment(
            self._namespace, self._address, around.late_env or {}, around.workspace, around.packages, uses_tpu
        )
        return Plan(TaskPayload(environment, payload), options, is_program=program is not None)

    def _chosen(self, resources: ResourceConfig) -> ResourceConfig:
        """Return the resources with the first device alternative that the cluster has."""
        if not resources.device_alternatives or not isinstance(resources.device, TpuConfig):
            return resources
        there = ray_cluster.resources()
        for variant in (resources.device.variant, *resources.device_alternatives):
            if f"TPU-{variant}-head" in there:
                return replace(resources, device=TpuConfig(variant))
        return resources

    def _check_feasible(self, what: str, taken: Mapping[str, float]) -> None:
        shape = tuple(sorted(taken.items()))
        if shape in self._feasible:
            return
        missing = shortfall(taken, ray_cluster.nodes())
        if missing is None:
            self._feasible.add(shape)
        elif self._elastic:
            logger.warning("%s waits for a node that is large enough: %s", what, missing)
        else:
            raise InvalidRequest(f"{what} fits on no node of the cluster; the nearest: {missing}")

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise Conflict(f"{what}: this Ray client has been shut down; make a new one")

    def _end_session(self) -> None:
        session = self.known_session()
        if session is None:
            return
        with contextlib.suppress(ray.exceptions.RayError):
            if self._owns_session:
                ray.get(session.close.remote(), timeout=_CLOSE_SECONDS)
                ray.kill(session, no_restart=True)
                self.sessions.forget()
            else:
                for name in list(self._actors.groups):
                    ray.get(session.kill.remote(name), timeout=_CLOSE_SECONDS)

    def _host_actor(self, request: ActorRequest) -> HostedActor:
        self._check_actor(request.name)
        group = self._actors.host(request)
        return HostedActor(group.only_member(), group.shutdown)

    def _start_actors(self, request: ActorRequest) -> RayActorGroup:
        self._check_actor(request.name)
        return self._actors.start(request)

    def _check_actor(self, name: str) -> None:
        self._owner.check("actor", name)
        self._check_open(f"actor {name!r}")


def _tell_actors(client: "weakref.ref[RayClient]") -> None:
    if (found := client()) is not None:
        found.end_actors()


def _hosts(resources: ResourceConfig) -> int:
    return get_tpu_topology(resources.device.variant).vm_count if isinstance(resources.device, TpuConfig) else 1
