"""Permitted differences between backends, each with a name.

Everything that is not named here is the same on every backend, and `fray.testing.contract` holds them to it.
"""

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["DIFFERENCES", "BackendCapabilities", "Difference"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of `BackendCapabilities`, for people.

    Args:
        promise: What holds where the field is True.
        instead: What happens where it is False.
    """

    promise: str
    instead: str


def _promise(promise: str, instead: str) -> Any:
    return field(default=False, metadata={"difference": Difference(promise, instead)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCapabilities:
    """The promises of a backend that not all give: those that it names as True; `DIFFERENCES` has each in words."""

    separate_processes: bool = _promise(
        "callables run in processes of their own: with their environment variables, in their workspace, contained when "
        "they crash, interrupted by terminate()",
        "callables share the client's process: environment variables that differ are named in a warning and not "
        "applied, and terminate() stops the job at once but leaves the callable to return by itself",
    )
    crash_codes: bool = _promise(
        "the exit code of a callable whose process ended by itself is told",
        "that its process ended is told, but not how",
    )
    callable_logs: bool = _promise(
        "logs() has what callables print",
        "logs() of a callable is empty; what it prints goes to the client's own output",
    )
    raises_own_exceptions: bool = _promise(
        "wait() raises the exception that the callable raised",
        "wait() raises JobFailed with the type, text and traceback of what the callable raised, and that itself as its "
        "cause where it can be pickled",
    )
    installs_packages: bool = _promise(
        "pip packages and extras of the environment are installed for the job",
        "pip packages and extras that the client does not have are named in a warning; the job has what the client has",
    )
    enforces_resources: bool = _promise(
        "a job waits for the processors it asks for, and one that no machine could ever run is refused at submission, "
        "with the reason",
        "resources are not looked at",
    )
    replicas_retried_together: bool = _promise(
        "when a replica fails and is retried, all of the job's replicas start over, those that had ended well too",
        "without an accelerator, only the replica that failed is run again; the hosts of a slice start over together",
    )
    failed_replicas_tolerated: bool = _promise(
        "a job goes on, and may succeed, while no more than max_task_failures of its replicas have failed for good",
        "a job fails with its first replica; max_task_failures above 0 is refused at submission",
    )
    free_names: bool = _promise(
        "job and actor names may have any characters that can be seen, and spaces, but no '/'",
        "names have 1 to 128 of A-Z a-z 0-9 _ . @ + = - and not digits alone; others are refused at submission",
    )
    shared_names: bool = _promise(
        "a job's name is taken for all clients of the cluster: another client adopts the live job",
        "names belong to a client: two clients may each have a job of one name",
    )
    children_end_with_parent: bool = _promise(
        "children that a job has not waited for are stopped when it ends, however it ends",
        "children that a job has not waited for go on when it has ended well; when it failed or was stopped, they may",
    )
    jobs_outlive_client: bool = _promise(
        "jobs go on after the client's shutdown, which does not wait for them; its handles cannot ask after them then",
        "shutdown() waits for the client's jobs, and shutdown(wait=False) stops them; its handles tell how they ended",
    )
    forked_client: bool = _promise(
        "current_client() in a forked child of the submitting process gives a working client",
        "current_client() in a forked child is refused: start a new process instead",
    )
    actors: bool = _promise(
        "actors and actor groups are offered",
        "create_actor and its like raise InvalidRequest",
    )
    hosted_in_process: bool = _promise(
        "host_actor makes the actor in the calling process",
        "host_actor makes the actor in a process of its own on the same machine",
    )
    actor_restarts: bool = _promise(
        "an actor whose process died is started again, up to max_restarts times",
        "an actor cannot die apart from the client's process, so max_restarts is not used",
    )


DIFFERENCES: dict[str, Difference] = {each.name: each.metadata["difference"] for each in fields(BackendCapabilities)}
"""The fields of `BackendCapabilities` in words, in their order."""
