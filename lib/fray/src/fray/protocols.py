"""The interface of every backend's client and job handles, as Protocols."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from fray.actor import ActorGroup, ActorHandle, HostedActor
from fray.capabilities import BackendCapabilities
from fray.types import ActorConfig, JobRequest, JobStatus, ResourceConfig, Value, Value_co

__all__ = [
    "Client",
    "FindsEndedJobs",
    "GivesAttemptOutputs",
    "GivesNewOutput",
    "GivesReplicaLogs",
    "JobHandle",
    "JobHours",
    "RunsRayFunctions",
    "StopsMany",
    "SubmitsMany",
    "TellsHours",
    "TellsPendingReason",
    "TellsRegions",
    "TellsStart",
]

T = TypeVar("T")


class JobHandle(Protocol[Value_co]):
    """A submitted job. Its type parameter is the type of its callable's value; a bare `JobHandle` means any type."""

    @property
    def job_id(self) -> str:
        """The backend's unique id of this job. It is never reused."""
        ...

    def status(self) -> JobStatus:
        """Return the job's current status."""
        ...

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Wait for the job's end and return its final status.

        Args:
            timeout: Seconds to wait; None waits forever. The job continues after a timeout.
            raise_on_failure: Raise if the job failed or was stopped, instead of returning that status.

        Raises:
            DeadlineExceeded: (a TimeoutError) The job did not end in time.
            JobFailed: The job did not succeed. The local backend raises a callable's own exception instead.
        """
        ...

    def result(self, timeout: float | None = None) -> Value_co:
        """Wait for the job's end and return its callable's value; for several replicas, a list by replica index.

        Type checkers do not see the number of replicas: annotate the handle of several as a bare `JobHandle`.
        A local backend without processes returns the same object; others return an unpickled copy.

        Args:
            timeout: Seconds to wait; None waits forever. The job continues after a timeout.

        Raises:
            DeadlineExceeded: (a TimeoutError) The job did not end in time.
            InvalidRequest: The job runs a program.
            JobFailed: The job did not succeed, and the callable's own exception is not available. If it is, it is
                raised unchanged, caused by its remote traceback.
            ResultUnavailable: The value could not be pickled or is gone, or the callable ended by `sys.exit(0)`.
        """
        ...

    def terminate(self) -> None:
        """Ask the job to stop. This has no effect after the job's end. Use `wait` to see when the job is gone."""
        ...

    def logs(self) -> str:
        """Return the job's stdout and stderr so far, as far as the backend captures them."""
        ...

    def add_done_callback(self, callback: Callable[["JobHandle[Value_co]"], object]) -> None:
        """Call `callback(handle)` once when the job ends, or now if it has ended. The callback must not block and may
        run in any thread.
        """
        ...


class Client(Protocol):
    """Submits jobs and hosts actors."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """The optional promises that this client makes."""
        ...

    @property
    def closed(self) -> bool:
        """Whether `shutdown` was called. A closed client refuses new work."""
        ...

    def submit(self, request: JobRequest[Value], adopt_existing: bool = True) -> JobHandle[Value]:
        """Start a job and return its handle immediately.

        Args:
            request: The job to run.
            adopt_existing: If a live job has that name, return its handle instead of raising JobAlreadyExists.
        """
        ...

    def host_actor(
        self, actor_class: type[T], *args: Any, name: str, actor_config: ActorConfig | None = None, **kwargs: Any
    ) -> HostedActor:
        """Create an actor in this process.

        Args:
            actor_class: The class; constructed here with `args` and `kwargs`.
            *args: Positional arguments of the constructor.
            name: The name of the actor, for callers.
            actor_config: Concurrency, restarts and retries; None for the defaults.
            **kwargs: Keyword arguments of the constructor.
        """
        ...

    def create_actor(
        self,
        actor_class: type[T],
        *args: Any,
        name: str,
        resources: ResourceConfig | None = None,
        actor_config: ActorConfig | None = None,
        **kwargs: Any,
    ) -> ActorHandle:
        """Start one actor, wait until it is ready and return its handle.

        Args:
            actor_class: The actor's class. `args` and `kwargs` go to its constructor.
            *args: Positional arguments of the constructor.
            name: The actor's name, taken while it runs.
            resources: Its resources; None for the backend's default.
            actor_config: How it serves calls; None for `ActorConfig()`.
            **kwargs: Keyword arguments of the constructor.
        """
        ...

    def create_actor_group(
        self,
        actor_class: type[T],
        *args: Any,
        name: str,
        count: int,
        resources: ResourceConfig | None = None,
        actor_config: ActorConfig | None = None,
        **kwargs: Any,
    ) -> ActorGroup:
        """Start `count` actors of one class and return their group immediately.

        Args:
            actor_class: The actors' class.
            *args: Positional arguments of the constructor.
            name: The group's name, taken while one of its actors runs.
            count: The number of actors.
            resources: The resources of each actor; None for the backend's default.
            actor_config: How each actor serves calls; None for `ActorConfig()`.
            **kwargs: Keyword arguments of the constructor.
        """
        ...

    def shutdown(self, wait: bool = True) -> None:
        """Refuse new work and stop the actors. With `wait`, let the jobs end first; otherwise stop them too."""
        ...


@runtime_checkable
class RunsRayFunctions(Protocol):
    """A client that can also run functions under `@ray.remote`. Check with `isinstance`."""

    def run_remote_function(self, fn: Any, args: Sequence[Any]) -> Any:
        """Run `fn`, which is already `@ray.remote`, with its decorator's options. Return its result or raise its error.

        The call is not a job and has no log: its output is printed here.
        """
        ...


@runtime_checkable
class TellsRegions(Protocol):
    """A client whose cluster knows the regions of its accelerators. Check with `isinstance`."""

    def accelerator_regions(self, variants: Sequence[str]) -> list[str]:
        """Return the sorted regions that have all of these variants, such as "v5p-8"; may be empty."""
        ...


class JobHours(NamedTuple):
    """The hours of one use of a job.

    Attributes:
        core_hours: Hours of cores that it held.
        chip_hours: Hours of accelerator chips.
        cost: Their price; None if unknown.
    """

    core_hours: float
    chip_hours: float
    cost: float | None


@runtime_checkable
class TellsHours(Protocol):
    """A client whose cluster counts the hours of jobs, also of ended ones. Check with `isinstance`."""

    def hours_of(self, job_ids: Sequence[str], since: float = 0.0) -> Mapping[str, Mapping[str, JobHours]]:
        """Return the hours of jobs with their children, by job and use, e.g. "productive" or "lost". Unknown jobs are
        left out.

        Args:
            job_ids: The jobs. Later jobs of the same name count too.
            since: Only hours since (Unix time in seconds).
        """
        ...


@runtime_checkable
class TellsPendingReason(Protocol):
    """A `JobHandle` whose cluster knows why a job is pending. Check with `isinstance`."""

    def pending_reason(self) -> str:
        """Return why the job is pending, in words; "" if it is not pending or the reason is unknown."""
        ...


@runtime_checkable
class GivesReplicaLogs(Protocol):
    """A `JobHandle` of a job whose output no other process shows. Check with `isinstance`."""

    def replica_logs(self) -> Mapping[int | None, str]:
        """Return `logs()` by replica, for those that wrote something; under None if replicas are not distinguished."""
        ...


@runtime_checkable
class GivesNewOutput(Protocol):
    """A `JobHandle` of a job whose output no other process shows, and whose log is remote. Check with `isinstance`."""

    def new_output(self, *, ended: bool = False) -> Mapping[int | None, str]:
        """Return the output since the last call, by replica. Notes that concern all replicas are under None.

        Args:
            ended: Whether the job has ended and this is the last call. If so, a note mentions omitted output.
        """
        ...


@runtime_checkable
class GivesAttemptOutputs(Protocol):
    """A `JobHandle` whose cluster keeps the output of every attempt, even of lost hosts. Check with `isinstance`."""

    def attempt_outputs(self) -> Mapping[tuple[int, int], Sequence[tuple[int, bytes]]]:
        """Return the output of each attempt, by replica and attempt: pairs of a stream (1, 2) and bytes, in order."""
        ...


@runtime_checkable
class FindsEndedJobs(Protocol):
    """A client whose cluster remembers jobs of earlier processes. Check with `isinstance`."""

    def ended_job(self, name: str) -> JobHandle | None:
        """Return the last job of that name if it has ended and is remembered; None if it is live or unknown."""
        ...


@runtime_checkable
class SubmitsMany(Protocol):
    """A client that submits many jobs at once in less time than one by one. Check with `isinstance`."""

    def submit_all(self, requests: Sequence[JobRequest]) -> Iterator[JobHandle]:
        """Submit jobs during the iteration, and yield their handles in order. If a part is refused, earlier ones run.

        Raises:
            JobAlreadyExists: A live job has one of the names.
        """
        ...


@runtime_checkable
class StopsMany(Protocol):
    """A `JobHandle` whose backend stops many jobs in less time than one by one. Check with `isinstance`."""

    def terminate_with(self, others: Iterable[JobHandle]) -> None:
        """Stop this job and others of the same type, like `JobHandle.terminate` for each."""
        ...


@runtime_checkable
class TellsStart(Protocol):
    """A client whose cluster can tell when a job would start. Check with `isinstance`."""

    def expected_start(self, request: JobRequest) -> str:
        """Return when the job would start, in the cluster's words, without submitting it."""
        ...
