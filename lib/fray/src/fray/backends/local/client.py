"""Jobs and actors inside this process: the client for laptops and tests."""

import contextlib
import itertools
import logging
import math
import os
from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import partial
from typing import Final

from fray.actor import HostedActor, enter_actor
from fray.backends.common.actors import ActorRequest
from fray.backends.common.client import BaseClient
from fray.backends.local.actor import LocalActor, LocalActorGroup
from fray.backends.local.forks import ForkServer
from fray.backends.local.job import LocalJob
from fray.backends.local.missing import missing_packages
from fray.backends.local.scratch import ScratchFolder
from fray.backends.local.slots import Slot, SlotPool
from fray.backends.local.subprocess_call import CallFolders, SubprocessCall
from fray.capabilities import BackendCapabilities
from fray.context import adopt_client
from fray.errors import JobAlreadyExists
from fray.protocols import Client, JobHandle
from fray.types import DEFAULT_ENV_VARS, CpuConfig, JobRequest, Value
from fray.waiting import set_wait_context
from rigging.errors import Conflict, InvalidRequest
from rigging.filesystem.budget import budget_environment

logger = logging.getLogger(__name__)

_NOTE: Final = "WANDB_NOTES"
"""Set for every job of a step. It changes nothing that the job computes."""

CAPABILITIES = BackendCapabilities(
    lends_while_waiting=True,
    crash_codes=True,
    raises_own_exceptions=True,
    replicas_retried_together=True,
    free_names=True,
    forked_client=True,
    actors=True,
    hosted_in_process=True,
)
PROCESS_CAPABILITIES = replace(CAPABILITIES, separate_processes=True, callable_logs=True)

# The kernel takes 108 or, on macOS, 104.
_MOST_SOCKET_PATH_BYTES = 100

# The slot of the job that this code runs in, if it runs in one.
_job_slot: ContextVar[Slot | None] = ContextVar("fray_local_job_slot", default=None)


def connect(address: str | None) -> Client:
    """Create a client for the registry. Options replace the address: "?processes=1&max_threads=4&admission=1"."""
    if address is None:
        return LocalClient()
    from urllib.parse import parse_qsl

    options: dict[str, int] = {}
    pairs = parse_qsl(address.removeprefix("?"), keep_blank_values=True) if address.startswith("?") else []
    for name, value in pairs or [(address, "")]:
        if name not in ("processes", "max_threads", "admission") or not value.isdecimal():
            raise InvalidRequest(
                f"fray client 'local://{address}': the local backend accepts only options: "
                "processes, max_threads and admission with a number each, e.g. 'local://?processes=1&max_threads=4'"
            )
        options[name] = int(value)
    return LocalClient(
        max_threads=options.get("max_threads", 8),
        admission=bool(options.get("admission")),
        processes=bool(options.get("processes")),
    )


class LocalClient(BaseClient):
    """Run callables in threads of this process, and programs as its subprocesses.

    Unlike on a cluster, callables share this process: `terminate` cannot interrupt one, its output is not captured
    (`logs()` is empty), and its environment's `env_vars` are not applied (a warning names those that differ). Programs
    get their `env_vars`, run in their `workspace`, and are killed with all their children. Nothing is installed: a
    warning names missing packages and extras. Images are ignored. The `replicas` of a job run concurrently in one slot.

    Args:
        max_threads: Maximum number of running jobs; others are queued. A job that waits for others or has unfinished
            children does not count.
        processes: Run callables in separate processes too, from a pickle made at submission, with their variables and
            workspace, and their output in `logs()`. `terminate` and crashes end only the callable. No job outlives this
            process. Actors stay in this process; their handles work everywhere on this machine.
        admission: Keep a job pending until this machine has free CPUs for all replicas, and refuse a job that could
            never run here. By default resources are ignored.
    """

    def __init__(self, max_threads: int = 8, admission: bool = False, *, processes: bool = False) -> None:
        if max_threads < 1:
            raise InvalidRequest(f"LocalClient: max_threads must be at least 1, not {max_threads}")
        super().__init__()
        self._processes = processes
        self._max_threads = max_threads
        self._scratch = ScratchFolder()
        self._folders = CallFolders(self._scratch, ScratchFolder())
        self._sockets = ScratchFolder("/tmp")
        self._forks = ForkServer()
        self._admission = admission
        declared = PROCESS_CAPABILITIES if processes else CAPABILITIES
        self._capabilities = replace(declared, enforces_resources=admission)
        self._cpus = os.cpu_count() or 1
        self._pool = SlotPool(max_threads, self._cpus if admission else math.inf)
        self._numbers = itertools.count(1)
        self._live: dict[str, LocalJob] = {}
        self._actor_groups: dict[str, LocalActorGroup] = {}
        self._draining = False
        # Threads of ours end with the interpreter, but programs would not.
        self._owner.at_end(self, partial(_kill_jobs, self._live))
        self._owner.at_end(self, self._pool.dismiss)

    @property
    def capabilities(self) -> BackendCapabilities:
        return self._capabilities

    def submit(self, request: JobRequest[Value], adopt_existing: bool = True) -> JobHandle[Value]:
        """Start a job (see `Client.submit`). Its name is free again once it has ended."""
        self._owner.check("job", request.name)
        self._check_admission(request)
        self._check_open("job", request.name)
        subprocess_call = self._pickled(request)
        with self._lock:
            self._check_open("job", request.name)
            existing = self._live.get(request.name)
            if existing is not None and not existing.status().finished():
                if not adopt_existing:
                    raise JobAlreadyExists(
                        f"job {request.name!r} is {existing.status()} as {existing.job_id}; choose another name, "
                        "wait for its end, or submit with adopt_existing=True",
                        existing,
                        job_name=request.name,
                    )
                job = existing
            else:
                job_id = f"local-{next(self._numbers)}-{request.name}"
                variables = SubprocessCall.environment(self._max_threads) if self._processes else None
                job = LocalJob(job_id, request, self._forget, _lent_slot, subprocess_call, variables)
                self._live[request.name] = job
        self._count_as_child(job)
        if job is not existing:
            self._start(job)
        return job

    def _host_actor(self, request: ActorRequest) -> HostedActor:
        """Same as `create_actor`: all actors live in this process."""
        group = self._start_actors(request)
        return HostedActor(group.only_member(), group.shutdown)

    def _start_actors(self, request: ActorRequest) -> LocalActorGroup:
        """Construct actors, each in its own thread. Each uses up to `max_concurrency` threads."""
        name = request.name
        self._owner.check("actor", name)
        context = copy_context()
        context.run(self._enter_actor_context)
        with self._lock:
            self._check_open("actor", name)
            existing = self._actor_groups.get(name)
            if existing is not None and not existing.is_done():
                raise JobAlreadyExists(
                    f"actor {name!r} exists; choose another name or shut it down first", job_name=name
                )
            members = [LocalActor(request, index, self._new_actor_path) for index in range(request.count)]
            group = self._actor_groups[name] = LocalActorGroup(name, members)
        group.start(context)
        return group

    def shutdown(self, wait: bool = True) -> None:
        """Refuse new work, wait for the jobs (without `wait`: kill them), then stop the actors.

        With `wait`, no thread or process of this client remains afterwards, and a stopped callable that never returns
        blocks this method forever. Jobs that still run may submit more jobs. If a job shuts down its own client, this
        method does not wait for that job's thread.
        """
        self._owner.check("shutdown()")
        with self._lock:
            # Once closed for all it stays so.
            self._draining = wait and (self._draining or not self._closed)
            self._closed = True
        if wait:
            self._pool.join()
            with self._lock:
                self._draining = False
        self._pool.dismiss()
        _kill_jobs(self._live)
        with self._lock:
            groups = list(self._actor_groups.values())
        for group in groups:
            group.shutdown()
        if wait:
            for group in groups:
                group.join()
            self._forks.close()
            self._scratch.remove()
            self._sockets.remove()

    def _new_actor_path(self) -> str:
        path = str(self._scratch.new_path("actor"))
        return path if len(os.fsencode(path)) <= _MOST_SOCKET_PATH_BYTES else str(self._sockets.new_path("actor"))

    def _pickled(self, request: JobRequest) -> SubprocessCall | None:
        """Pickle the request's callable now, if it runs in a separate process."""
        entry = request.entrypoint.callable_entrypoint
        if entry is None or not self._processes:
            return None
        workspace = request.environment.workspace if request.environment else None
        return SubprocessCall.prepare(entry, f"job {request.name!r}", workspace, self._folders, self._forks)

    def _check_open(self, kind: str, name: str) -> None:
        if self._closed and not (self._draining and self._pool.owns(_job_slot.get())):
            raise Conflict(f"{kind} {name!r}: this LocalClient has been shut down; make a new one")

    def _check_admission(self, request: JobRequest) -> None:
        if not self._admission:
            return
        if not isinstance(request.resources.device, CpuConfig):
            raise InvalidRequest(
                f"job {request.name!r} asks for {request.resources.device.variant}; with admission=True a LocalClient "
                "has processors only"
            )
        cpus = request.resources.cpu * request.replica_count
        if cpus > self._cpus:
            raise InvalidRequest(
                f"job {request.name!r} asks for {cpus} CPUs over its replicas; this machine has {self._cpus}"
            )

    def _count_as_child(self, job: LocalJob) -> None:
        """Let the submitting job, if any, lend its slot until `job` has ended."""
        parent = _job_slot.get()
        if parent is not None:
            parent.lend()
            job.add_done_callback(lambda _: parent.reclaim())

    def _start(self, job: LocalJob) -> None:
        context = copy_context()

        def run(slot: Slot) -> None:
            context.run(self._run_job, job, slot)

        self._warn_of_what_is_ignored(job.request)
        cpus = job.request.resources.cpu * job.request.replica_count if self._admission else 0
        self._pool.start(run, cpus)

    def _run_job(self, job: LocalJob, slot: Slot) -> None:
        _job_slot.set(slot)
        set_wait_context(_lent_slot)
        enter_actor(None)
        adopt_client(self)
        job.run()

    def _enter_actor_context(self) -> None:
        # An actor outlives the job that made it, and has threads of its own rather than that job's slot.
        _job_slot.set(None)
        adopt_client(self)

    def _warn_of_what_is_ignored(self, request: JobRequest) -> None:
        environment = request.environment
        if environment is None:
            return
        missing = missing_packages(environment)
        if missing:
            logger.warning(
                "job %r: not installed, because the local backend installs nothing: %s",
                request.name,
                ", ".join(missing),
            )
        if request.entrypoint.callable_entrypoint is None or self._processes:
            return
        # Not about our own defaults, nor about the budget, which is in force here as it is, nor about a mere note.
        asked = environment.env_vars.items() - DEFAULT_ENV_VARS.items() - budget_environment().items()
        differing = sorted(name for name, value in asked if os.environ.get(name) != value and name != _NOTE)
        if differing:
            logger.warning(
                "job %r: environment variables are not applied to callables of the local backend, which share this "
                "process: %s",
                request.name,
                ", ".join(differing),
            )

    def _forget(self, job: LocalJob) -> None:
        with self._lock:
            if self._live.get(job.request.name) is job:
                del self._live[job.request.name]


def _kill_jobs(live: dict[str, LocalJob]) -> None:
    for job in list(live.values()):
        job.terminate(kill_after=0)


@contextlib.contextmanager
def _lent_slot() -> Iterator[None]:
    slot = _job_slot.get()
    if slot is None:
        yield
        return
    slot.lend()
    try:
        yield
    finally:
        slot.reclaim()
