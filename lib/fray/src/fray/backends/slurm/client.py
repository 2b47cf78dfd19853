"""The client of a Slurm cluster."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn

from fray.backends.common.actors import ActorRequest
from fray.backends.common.child import write_payload
from fray.backends.common.client import BaseClient
from fray.backends.slurm import commands
from fray.backends.slurm.address import SlurmAddress, parse_address
from fray.backends.slurm.commands import NotAnswered, Refused
from fray.backends.slurm.folder import End, Group, SharedFolder, Spec
from fray.backends.slurm.job import SlurmJob
from fray.backends.slurm.packages import ensure_packages
from fray.backends.slurm.request import check_request, gpu_type, options_of, spec_of, write_script
from fray.backends.slurm.runner import NAME_ENV
from fray.backends.slurm.watch import JobWatcher, settle
from fray.capabilities import BackendCapabilities
from fray.errors import JobAlreadyExists
from fray.protocols import JobHandle
from fray.sending import pickling
from fray.types import Entrypoint, GpuConfig, JobRequest, JobStatus, Value
from rigging.errors import Conflict, InvalidRequest, Unavailable

CAPABILITIES = BackendCapabilities(
    separate_processes=True,
    crash_codes=True,
    callable_logs=True,
    installs_packages=True,
    enforces_resources=True,
    replicas_retried_together=True,
    free_names=True,
    shared_names=True,
    jobs_outlive_client=True,
    forked_client=True,
)
_ANY: Final[Entrypoint[Any]] = Entrypoint.from_binary("any")


def connect(address: str | None) -> "SlurmClient":
    """Create a client for the registry: "PARTITION?account=lab&time=1:00:00&dir=/shared/me"."""
    return SlurmClient(parse_address(address))


class SlurmClient(BaseClient):
    """Run jobs by `sbatch`, in this process's Python, with their files in a folder that all nodes share.

    Jobs run in their workspace itself, so edits made before a job starts change it. `pip_packages` and `extras` are
    installed once into the shared folder. Jobs wait for no client: they retry failures themselves, and Slurm requeues
    them. The disk, regions and preemptibility of requests are left to the partition.

    Args:
        address: The cluster and the folder.
    """

    def __init__(self, address: SlurmAddress) -> None:
        super().__init__()
        self._address = address
        self._folder = SharedFolder(address.directory)
        self._watcher = JobWatcher()
        self._pruned = False
        self._gpu_types: set[str] | None = None

    @property
    def capabilities(self) -> BackendCapabilities:
        return CAPABILITIES

    @property
    def spec(self) -> str:
        """The value of FRAY_CLIENT for this client."""
        return self._address.spec

    def submit(self, request: JobRequest[Value], adopt_existing: bool = True) -> JobHandle[Value]:
        """Submit a job (see `Client.submit`). A submission that Slurm did not answer is looked up before another."""
        self.check_open(f"job {request.name!r}")
        prepared = self._prepare([request])
        with self._folder.locked_name(prepared.spec.names[0]) as file:
            known = file.read()
            live = None if known is None else self._live(*known)
            if live is None:
                (live,) = self._send(prepared, [file.write], adopt_existing)
            elif not adopt_existing:
                raise _taken(request, live)
        self._watcher.add([live])
        return live

    def submit_all(self, requests: Sequence[JobRequest]) -> Iterator[JobHandle]:
        """Submit jobs with new names, as arrays where possible (see `fray.client.SubmitsMany`)."""
        largest = commands.largest_array() if len(requests) > 1 else 1
        for start in range(0, len(requests), largest):
            part = list(requests[start : start + largest])
            if len(part) > 1 and all(_shared(each) == _shared(part[0]) for each in part):
                yield from self._submit_array(part)
            else:
                yield from (self.submit(request, adopt_existing=False) for request in part)

    def expected_start(self, request: JobRequest) -> str:
        """Return when a job would start, in Slurm's words (see `fray.client.TellsStart`)."""
        self.check_open(f"job {request.name!r}")
        check_request(request)
        with self._folder.refusals():
            script = write_script(self._folder.path, sys.executable, None)
        try:
            options = options_of(request, request.name, self._address, None, gpu=self._gpu_type(request))
            return commands.expected_start(options, script)
        except Refused as error:
            raise InvalidRequest(f"job {request.name!r}: Slurm refuses it: {error}") from None

    def ended_job(self, name: str) -> JobHandle | None:
        """Return the last job of that name if it has ended (see `fray.client.FindsEndedJobs`)."""
        self.check_open(f"job {name!r}")
        with self._folder.locked_name(_full_name(name)) as file:
            known = file.read()
        if known is None or self._live(*known) is not None:
            return None
        job = self._job(*known)
        self._watcher.add([job])
        return job

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002
        """Refuse new work. Jobs continue, whatever `wait` says; stop them by their handles."""
        self._owner.check("shutdown()")
        with self._lock:
            self._closed = True
        self._watcher.close()

    def check_open(self, what: str) -> None:
        """Raise Conflict if this client was shut down or this process is a fork."""
        self._owner.check(what)
        if self._closed:
            raise Conflict(f"{what}: this Slurm client has been shut down; make a new one")

    def hurry(self) -> None:
        """Ask Slurm soon."""
        self._watcher.hurry()

    def _host_actor(self, request: ActorRequest) -> NoReturn:
        self._start_actors(request)

    def _start_actors(self, request: ActorRequest) -> NoReturn:
        raise InvalidRequest(
            f"actor {request.name!r}: the Slurm backend has no actors; run this part on Iris, Ray or the local backend"
        )

    def _submit_array(self, requests: list[JobRequest]) -> list[SlurmJob]:
        self.check_open(f"job {requests[0].name!r}")
        prepared = self._prepare(requests)
        with contextlib.ExitStack() as locks:
            files = []
            for request, name in zip(requests, prepared.spec.names, strict=True):
                file = locks.enter_context(self._folder.locked_name(name))
                known = file.read()
                if known is not None and (live := self._live(*known)) is not None:
                    raise _taken(request, live)
                files.append(file.write)
            jobs = self._send(prepared, files, adoptable=False)
        self._watcher.add(jobs)
        return jobs

    def _prepare(self, requests: list[JobRequest]) -> "_Prepared":
        """Check requests that share a group, pickle their callables and install their packages."""
        first = requests[0]
        check_request(first)
        roots = [os.path.realpath(path) for path in sys.path]
        workspace = first.environment.workspace if first.environment else None
        importable = [os.path.realpath(workspace or os.getcwd()), *roots]
        calls = []
        for request in requests:
            entry = request.entrypoint.callable_entrypoint
            if entry is not None:
                call = (entry.callable, entry.args, dict(entry.kwargs))
                calls.append(pickling.dumps(call, f"job {request.name!r}", importable))
        packages = ensure_packages(self._folder.path, first.environment)
        names = [_full_name(request.name) for request in requests]
        return _Prepared(first, spec_of(first, names, self._address, packages), calls, roots)

    def _send(
        self, prepared: "_Prepared", keep: Sequence[Callable[[Group, int], None]], adoptable: bool
    ) -> list[SlurmJob]:
        """Submit a group. `keep` stores its jobs' places before Slurm can know of them.

        Args:
            prepared: The group's jobs.
            keep: For each job.
            adoptable: Whether an interrupted submission is left for the next one of its name, instead of stopped.
        """
        request, spec = prepared.request, prepared.spec
        if not self._pruned:
            self._pruned = True
            self._folder.prune()
        gpu = self._gpu_type(request)
        group, count = self._folder.new_group(spec), len(spec.names)
        name = spec.names[0] if count == 1 else spec.names[0].rpartition("-")[0] or spec.names[0]
        try:
            with self._folder.refusals():
                for index, call in enumerate(prepared.calls):
                    write_payload(str(group.path / "calls" / str(index)), call, prepared.roots)
                for index, write in enumerate(keep):
                    write(group, index)
                script = write_script(self._folder.path, sys.executable, group)
            slurm_id = commands.submit(options_of(request, name, self._address, group, count, gpu), script)
        except InvalidRequest as error:
            shutil.rmtree(group.path, ignore_errors=True)
            refused = "Slurm refuses it: " if isinstance(error, Refused) else ""
            raise InvalidRequest(f"job {request.name!r}: {refused}{error}") from None
        except KeyboardInterrupt:
            if not adoptable:  # nobody will have the handles
                _stop_unanswered(group, count)
            raise
        except NotAnswered as error:
            slurm_id = self._look_up(group, f"job {request.name!r}: {error}")
        group.keep_id(slurm_id)
        return [self._job(group, index) for index in range(count)]

    def _gpu_type(self, request: JobRequest) -> str:
        device = request.resources.device
        if not isinstance(device, GpuConfig):
            return ""
        if self._gpu_types is None:
            self._gpu_types = commands.gpu_types(self._address.partition)
        return gpu_type(device.variant, self._gpu_types, f"job {request.name!r}")

    def _look_up(self, group: Group, problem: str) -> str:
        """Return the id of a group that Slurm may have."""
        try:
            found = commands.find_comment(group.comment)
        except Unavailable:
            found = None
        if found is None:
            raise Unavailable(
                f"{problem}; Slurm does not list it (comment {group.comment}). Submit it again under this name: it is "
                "looked up first"
            )
        return found

    def _live(self, group: Group, index: int) -> SlurmJob | None:
        """Return the job if it may still run."""
        if group.end(index) is not None:
            return None
        slurm_id = group.slurm_id() or commands.find_comment(group.comment)
        if slurm_id is None:
            # Should Slurm start it all the same, its runner finds this end and leaves.
            group.set_end(index, End(JobStatus.FAILED, "Slurm did not answer its submission and does not list it"))
            return None
        group.keep_id(slurm_id)
        job = self._job(group, index)
        try:
            state = commands.states({job.task: group.comment})[job.task]
        except Unavailable:
            return job
        if not state.ended:
            return job
        settle(group, index, job.task, state)
        return None

    def _job(self, group: Group, index: int) -> SlurmJob:
        names = group.spec().names
        return SlurmJob(self, group, index, group.slurm_id(), names[index], len(names))


class _Prepared(NamedTuple):
    """A group before its submission: its first request, what its jobs share, their pickles, and the import path."""

    request: JobRequest
    spec: Spec
    calls: list[bytes]
    roots: list[str]


def _stop_unanswered(group: Group, count: int) -> None:
    """Stop jobs that Slurm may have."""
    for index in range(count):
        group.mark("stop", index)
    with contextlib.suppress(Unavailable):
        slurm_id = commands.find_comment(group.comment)
        commands.cancel([slurm_id] if slurm_id else [])


def _full_name(name: str) -> str:
    """Return the name of a job with those of its parents, if this process is in a job."""
    parent = os.environ.get(NAME_ENV)
    return f"{parent}/{name}" if parent else name


def _shared(request: JobRequest) -> JobRequest | None:
    """Return what jobs of one array must have in common; None for a program."""
    if request.entrypoint.callable_entrypoint is None:
        return None
    return replace(request, name="x", entrypoint=_ANY)


def _taken(request: JobRequest, live: SlurmJob) -> JobAlreadyExists:
    return JobAlreadyExists(
        f"job {request.name!r} is {live.status()} as {live.job_id}; choose another name, wait for its end, or submit "
        "with adopt_existing=True",
        live,
        job_name=request.name,
    )
