"""The promises of every backend's client and job handles, as Protocols."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from fray.actor import ActorGroup, ActorHandle, HostedActor
from fray.capabilities import BackendCapabilities
from fray.types import ActorConfig, JobRequest, JobStatus, ResourceConfig

__all__ = [
    "Client",
    "FindsEndedJobs",
    "GivesAttemptOutputs",
    "GivesNewOutput",
    "GivesReplicaLogs",
    "JobHandle",
    "RunsRayFunctions",
    "TellsPendingReason",
    "TellsRegions",
]

T = TypeVar("T")


class JobHandle(Protocol):
    """A submitted job."""

    @property
    def job_id(self) -> str:
        """The backend's name for this one job; never used again for another."""
        ...

    def status(self) -> JobStatus:
        """The job's status now."""
        ...

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Wait for the job's end and return its final status.

        Args:
            timeout: Seconds to wait; None waits for ever. The job goes on after a timeout.
            raise_on_failure: Raise for a job that failed or was stopped, instead of returning that status.

        Raises:
            DeadlineExceeded: (a TimeoutError) The job had not ended in time.
            JobFailed: The job did not succeed. The local backend raises a callable's own exception instead.
        """
        ...

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job's end and return what its callable returned; of several replicas, a list by replica index.

        A local backend without processes returns the very object; the others a copy that was pickled.

        Args:
            timeout: Seconds to wait; None waits for ever. The job goes on after a timeout.

        Raises:
            DeadlineExceeded: (a TimeoutError) The job had not ended in time.
            InvalidRequest: The job runs a program.
            JobFailed: The job did not succeed, and not by an exception that can be had; that is raised as it is, with
                the traceback of where it was raised as its cause.
            ResultUnavailable: The value could not be sent, or is gone; or the callable ended by `sys.exit(0)`.
        """
        ...

    def terminate(self) -> None:
        """Ask the job to stop; does nothing to one that has ended. `wait` tells when it is gone."""
        ...

    def logs(self) -> str:
        """Return the job's stdout and stderr so far, as far as its backend captures them."""
        ...

    def add_done_callback(self, callback: Callable[["JobHandle"], object]) -> None:
        """Call `callback(handle)` once when the job ends, or now if it has; it must not block and may run anywhere."""
        ...


class Client(Protocol):
    """Submits jobs and hosts actors."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """The promises of this client that not all backends give."""
        ...

    @property
    def closed(self) -> bool:
        """Whether `shutdown` was called; a closed client refuses new work."""
        ...

    def submit(self, request: JobRequest, adopt_existing: bool = True) -> JobHandle:
        """Start a job and return its handle at once.

        Args:
            request: What to run.
            adopt_existing: Return the handle of a live job of that name, instead of raising JobAlreadyExists.
        """
        ...

    def host_actor(
        self, actor_class: type[T], *args: Any, name: str, actor_config: ActorConfig | None = None, **kwargs: Any
    ) -> HostedActor:
        """Make an actor that lives in this process; `args` and `kwargs` go to `actor_class`.

        Args:
            actor_class: The class; made here with `args` and `kwargs`.
            *args: To `actor_class`.
            name: Names the actor for callers.
            actor_config: Calls at once, restarts and retries; None: the defaults.
            **kwargs: To `actor_class`.
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
            actor_class: The actor's class; `args` and `kwargs` are for its constructor.
            *args: Positional arguments of the constructor.
            name: Of the actor; taken while it is up.
            resources: What it takes; None for what the backend gives to an actor that asks for nothing.
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
        """Start `count` actors of one class and return their group at once.

        Args:
            actor_class: The actors' class.
            *args: Positional arguments of the constructor.
            name: Of the group; taken while one of its actors is up.
            count: How many.
            resources: What each takes; None for what the backend gives to an actor that asks for nothing.
            actor_config: How each serves calls; None for `ActorConfig()`.
            **kwargs: Keyword arguments of the constructor.
        """
        ...

    def shutdown(self, wait: bool = True) -> None:
        """Refuse new work and stop the actors; let the jobs end first (`wait`), or stop them too."""
        ...


@runtime_checkable
class RunsRayFunctions(Protocol):
    """A client that can also run functions under `@ray.remote`; ask by `isinstance`."""

    def run_remote_function(self, fn: Any, args: Sequence[Any]) -> Any:
        """Run `fn`, which is `@ray.remote` already, as its decorator says; return what it returns, or raise its error.

        It is no job, and has no log: what it prints is printed here.
        """
        ...


@runtime_checkable
class TellsRegions(Protocol):
    """A client whose cluster knows in which regions its accelerators are; ask by `isinstance`."""

    def accelerator_regions(self, variants: Sequence[str]) -> list[str]:
        """Return the regions, sorted, that have every one of these variants, such as "v5p-8"; may be empty."""
        ...


@runtime_checkable
class TellsPendingReason(Protocol):
    """A `JobHandle` whose cluster says why a job does not run yet; ask by `isinstance`."""

    def pending_reason(self) -> str:
        """Why the job is pending, in words for people; "" when it is not pending or the reason is unknown."""
        ...


@runtime_checkable
class GivesReplicaLogs(Protocol):
    """A `JobHandle` whose job's output no other process shows; ask by `isinstance`."""

    def replica_logs(self) -> Mapping[int | None, str]:
        """`logs()` by replica, those that have written; under None where they are not told apart."""
        ...


@runtime_checkable
class GivesNewOutput(Protocol):
    """A `JobHandle` whose job's output no other process shows, and whose log is far away; ask by `isinstance`."""

    def new_output(self, *, ended: bool = False) -> Mapping[int | None, str]:
        """Return the output since the last call, by replica; under None, notes that concern all.

        Args:
            ended: The job has ended and this is the last call; output that is left out is mentioned.
        """
        ...


@runtime_checkable
class GivesAttemptOutputs(Protocol):
    """A `JobHandle` whose cluster keeps the output of each attempt, also of those whose host is gone; `isinstance`."""

    def attempt_outputs(self) -> Mapping[tuple[int, int], Sequence[tuple[int, bytes]]]:
        """Return the output of each attempt, by replica and attempt: pairs of a stream (1, 2) and bytes, in order."""
        ...


@runtime_checkable
class FindsEndedJobs(Protocol):
    """A client whose cluster remembers jobs of former processes; ask by `isinstance`."""

    def ended_job(self, name: str) -> JobHandle | None:
        """Return the last job of that name, if it has ended and is remembered; None when it lives, or there is none."""
        ...
