"""What Ray says of its cluster, with types, and where it cannot be asked."""

import os
from typing import Any, cast

import ray

from rigging.errors import Conflict

_in_fork = False


def _look_after_fork() -> None:
    # Ray's state is copied into the child, its threads are not.
    global _in_fork
    _in_fork = _in_fork or ray.is_initialized()


os.register_at_fork(after_in_child=_look_after_fork)


def refuse_forks(what: str) -> None:
    """Raise Conflict, whose message begins with `what`, in a fork of a process that was connected to Ray."""
    if _in_fork:
        raise Conflict(f"{what}: Ray cannot be used in a fork of a process that uses it; start a new process instead")


def nodes() -> list[dict[str, Any]]:
    """All nodes, the dead ones too."""
    return cast("list[dict[str, Any]]", ray.nodes())  # type: ignore[no-untyped-call]


def resources() -> dict[str, float]:
    """What all living nodes have together."""
    return cast("dict[str, float]", ray.cluster_resources())  # type: ignore[no-untyped-call]


def free_resources() -> dict[str, float]:
    """What of that is not taken; Ray is a moment behind."""
    return cast("dict[str, float]", ray.available_resources())  # type: ignore[no-untyped-call]


def is_remote() -> bool:
    """Whether this process is connected through `ray://`, and so is not on a node of the cluster."""
    return bool(ray.util.client.ray.is_connected())  # type: ignore[no-untyped-call]
