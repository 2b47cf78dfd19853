"""The one way to run jobs and actors: what every backend promises."""

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from fray.actor import ActorGroup, ActorHandle
from fray.capabilities import BackendCapabilities
from fray.context import blocking, waiting
from fray.errors import JobAlreadyExists, JobFailed
from fray.types import ActorConfig, JobRequest, JobStatus, ResourceConfig
from rigging.errors import DeadlineExceeded

__all__ = [
    "Client",
    "GivesNewOutput",
    "GivesReplicaLogs",
    "JobAlreadyExists",
    "JobFailed",
    "JobHandle",
    "RunsRayFunctions",
    "TellsPendingReason",
    "wait_all",
]

T = TypeVar("T")


class JobHandle(Protocol):
    """A submitted job."""

    @property
    def job_id(self) -> str:
        """The backend's name for this one job; never used again for another."""
        ...

    def status(self) -> JobStatus:
        """Where the job is now."""
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

    def terminate(self) -> None:
        """Ask the job to stop; does nothing to one that has ended. `wait` tells when it is gone."""
        ...

    def logs(self) -> str:
        """What the job has written to stdout and stderr so far, as far as its backend captures it."""
        ...

    def add_done_callback(self, callback: Callable[["JobHandle"], object]) -> None:
        """Call `callback(handle)` once when the job ends, or now if it has; it must not block and may run anywhere."""
        ...


class Client(Protocol):
    """Submits jobs and hosts actors."""

    @property
    def capabilities(self) -> BackendCapabilities:
        """Which of the promises that are not for everyone this client gives."""
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
        self, cls: type[T], *args: Any, name: str, actor_config: ActorConfig | None = None, **kwargs: Any
    ) -> ActorHandle:
        """Make an actor that lives in this process and return its handle; `args` and `kwargs` go to `cls`."""
        ...

    def create_actor(
        self,
        cls: type[T],
        *args: Any,
        name: str,
        resources: ResourceConfig | None = None,
        actor_config: ActorConfig | None = None,
        **kwargs: Any,
    ) -> ActorHandle:
        """Start one actor, wait until it is ready and return its handle."""
        ...

    def create_actor_group(
        self,
        cls: type[T],
        *args: Any,
        name: str,
        count: int,
        resources: ResourceConfig | None = None,
        actor_config: ActorConfig | None = None,
        **kwargs: Any,
    ) -> ActorGroup:
        """Start `count` actors of one class and return their group at once."""
        ...

    def shutdown(self, wait: bool = True) -> None:
        """Refuse new work and stop the actors; let the jobs end first (`wait`), or stop them too."""
        ...


@runtime_checkable
class RunsRayFunctions(Protocol):
    """What a client has beside `Client` where functions under `@ray.remote` can be run; ask by `isinstance`."""

    def run_remote_function(self, fn: Any, args: Sequence[Any]) -> Any:
        """Run `fn`, which is `@ray.remote` already, as its decorator says; return what it returns, or raise its error.

        It is no job: it has no name and no log.
        """
        ...


@runtime_checkable
class TellsPendingReason(Protocol):
    """What a `JobHandle` has beside where its cluster says why a job does not run yet; ask by `isinstance`."""

    def pending_reason(self) -> str:
        """Why the job is pending, in words for people; "" when it is not, or nobody knows."""
        ...


@runtime_checkable
class GivesReplicaLogs(Protocol):
    """What a `JobHandle` has beside where nobody else shows what its job writes; ask by `isinstance`."""

    def replica_logs(self) -> Mapping[int | None, str]:
        """`logs()` by replica, those that have written; under None where they are not told apart."""
        ...


@runtime_checkable
class GivesNewOutput(Protocol):
    """What a `JobHandle` has beside where nobody else shows what its job writes, and its log is far away."""

    def new_output(self, *, ended: bool = False) -> Mapping[int | None, str]:
        """What the replicas have written since the last call, by replica; None: what concerns all.

        Args:
            ended: The job has ended and this is the last call: what there is too much of is named.
        """
        ...


def wait_all(
    handles: Iterable[JobHandle], timeout: float | None = None, *, raise_on_failure: bool = True
) -> list[JobStatus]:
    """Wait until every job has ended and return their final statuses, in the order of `handles`.

    Args:
        handles: Jobs, of one client or several.
        timeout: Seconds for all of them together; None waits for ever.
        raise_on_failure: Raise the first failure as soon as it happens; the other jobs go on.

    Raises:
        DeadlineExceeded: Some had not ended in time; the message names them.
        JobFailed: A job did not succeed; the callable's own exception is its cause, where that can be had.
    """
    handles = list(handles)
    deadline = None if timeout is None else time.monotonic() + timeout
    ended: queue.SimpleQueue[JobHandle] = queue.SimpleQueue()
    for handle in handles:
        handle.add_done_callback(ended.put)
    for _ in handles:
        try:
            handle = _next_ended(ended, handles, deadline)
        except queue.Empty:
            unfinished = [handle.job_id for handle in handles if not handle.status().finished()]
            raise DeadlineExceeded(
                f"{len(unfinished)} of {len(handles)} jobs had not ended after {timeout} s: {', '.join(unfinished)}"
            ) from None
        if handle.wait(raise_on_failure=False) is not JobStatus.SUCCEEDED and raise_on_failure:
            _raise_failure(handle)
    return [handle.status() for handle in handles]


def _raise_failure(handle: JobHandle) -> None:
    """Raise the JobFailed of a job that has failed or was stopped, also where `wait` raises the callable's own."""
    try:
        handle.wait()
    except BaseException as error:  # whatever the callable raised: SystemExit must not end the waiting program
        # A callable's own may be the JobFailed of a child.
        if isinstance(error, JobFailed) and error.job_id == handle.job_id:
            raise
        title = "".join(traceback.format_exception_only(error)).strip()
        raise JobFailed(f"job {handle.job_id} failed: {title}", job_id=handle.job_id) from error


def _next_ended(
    ended: "queue.SimpleQueue[JobHandle]", handles: Sequence[JobHandle], deadline: float | None
) -> JobHandle:
    block = blocking()
    while True:
        left = None if deadline is None else min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        try:
            return ended.get_nowait()
        except queue.Empty:
            if left == 0.0:
                raise
        with waiting():
            if block is None:
                return ended.get(timeout=left)
            block(handles, left)
