"""The named differences that backends may have.

Everything else is the same on every backend, as `fray.testing.contract` checks.
"""

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["DIFFERENCES", "BackendCapabilities", "Difference"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of `BackendCapabilities`, in words.

    Args:
        promise: The guarantee of a backend whose field is True.
        instead: The behaviour of a backend whose field is False.
    """

    promise: str
    instead: str


def _promise(promise: str, instead: str) -> Any:
    return field(default=False, metadata={"difference": Difference(promise, instead)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCapabilities:
    """Promises that not all backends make: True for each promise that this backend makes. `DIFFERENCES` explains
    each."""

    separate_processes: bool = _promise(
        "a callable has its own process, variables and workspace; terminate() interrupts it",
        "callables share the client's process: no variables; terminate() ends the job, not the callable",
    )
    crash_codes: bool = _promise(
        "the exit code of a crashed callable is known",
        "only the crash is known",
    )
    callable_logs: bool = _promise(
        "logs() has the output of callables",
        "callables print to the client's output",
    )
    raises_own_exceptions: bool = _promise(
        "wait() raises the callable's own exception",
        "wait() raises JobFailed with its traceback, caused by the exception if it can be pickled",
    )
    installs_packages: bool = _promise(
        "pip packages and extras are installed for the job",
        "a warning names missing packages and extras",
    )
    enforces_resources: bool = _promise(
        "a job waits for its processors; an impossible request is refused with the reason",
        "resources are ignored",
    )
    lends_while_waiting: bool = _promise(
        "a job that waits for its children lends them its processors",
        "a waiting job keeps its processors; children need others",
    )
    replicas_retried_together: bool = _promise(
        "if one replica is retried, all replicas start over",
        "only the failed replica is retried; the hosts of a TPU slice start over together",
    )
    failed_replicas_tolerated: bool = _promise(
        "a job continues with up to max_task_failures failed replicas",
        "a job fails with its first replica; max_task_failures above 0 is refused",
    )
    free_names: bool = _promise(
        "names may have any visible characters and spaces, but no '/'",
        "names have 1 to 128 of A-Z a-z 0-9 _ . @ + = - and are not all digits",
    )
    shared_names: bool = _promise(
        "names belong to the cluster: another client adopts the live job",
        "names belong to a client",
    )
    children_end_with_parent: bool = _promise(
        "children end with their parent job",
        "children may continue",
    )
    jobs_outlive_client: bool = _promise(
        "jobs continue after the client's shutdown",
        "shutdown() waits for the client's jobs, shutdown(wait=False) stops them",
    )
    forked_client: bool = _promise(
        "current_client() works in a forked child",
        "it is refused: start a new process",
    )
    actors: bool = _promise(
        "actors and actor groups are supported",
        "create_actor and similar calls raise InvalidRequest",
    )
    hosted_in_process: bool = _promise(
        "host_actor creates the actor in the calling process",
        "host_actor creates a process on the same machine",
    )
    actor_restarts: bool = _promise(
        "dead actors restart up to max_restarts times",
        "actors die only with their client",
    )


DIFFERENCES: dict[str, Difference] = {each.name: each.metadata["difference"] for each in fields(BackendCapabilities)}
"""The fields of `BackendCapabilities` in words, in their order."""
