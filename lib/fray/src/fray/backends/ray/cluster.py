"""Typed queries about Ray's cluster, and checks that Ray can be used."""

import logging
import os
import threading
import time
from typing import Any, cast

import ray

from rigging.errors import Conflict, Unavailable

_LATELY_SECONDS = 1.0

_in_fork = False
_free: tuple[float, dict[str, float]] = (float("-inf"), {})
_asking = threading.Lock()
_connecting = threading.Lock()
_ray_logger = logging.getLogger("ray._private.worker")


def _look_after_fork() -> None:
    # Ray's state is copied into the child, its threads are not.
    global _in_fork
    _in_fork = _in_fork or ray.is_initialized()


os.register_at_fork(after_in_child=_look_after_fork)


def refuse_forks(what: str) -> None:
    """Raise Conflict, starting with `what`, in a fork of a process that was connected to Ray."""
    if _in_fork:
        raise Conflict(f"{what}: Ray cannot be used in a fork of a process that uses it; start a new process instead")


def nodes() -> list[dict[str, Any]]:
    """Return all nodes, including dead ones."""
    return cast("list[dict[str, Any]]", ray.nodes())  # type: ignore[no-untyped-call]


def resources() -> dict[str, float]:
    """Return the total resources of all living nodes."""
    return cast("dict[str, float]", ray.cluster_resources())  # type: ignore[no-untyped-call]


def free_resources() -> dict[str, float]:
    """Return the free part of `resources`. Ray's figures lag slightly."""
    return cast("dict[str, float]", ray.available_resources())  # type: ignore[no-untyped-call]


def free_resources_lately(seconds: float = _LATELY_SECONDS) -> dict[str, float]:
    """Return `free_resources`, cached for a few seconds: thousands of pending jobs may ask."""
    global _free
    with _asking:
        now = time.monotonic()
        if now >= _free[0] + seconds:
            _free = (now, free_resources())
        return _free[1]


def is_remote() -> bool:
    """Return whether this process is connected through `ray://`, and so is not on a node of the cluster."""
    return bool(ray.util.client.ray.is_connected())  # type: ignore[no-untyped-call]


def ensure_connected(address: str | None, namespace: str) -> None:
    """Connect this process to Ray, unless it is connected.

    Args:
        address: An address for `ray.init`; None for RAY_ADDRESS, which may be a dashboard's address.
        namespace: The Ray namespace of this process.

    Raises:
        Unavailable: No cluster answers.
        Denied: The cluster requires a token, or a different one.
    """
    refuse_forks("the Ray backend")
    with _connecting:
        if ray.is_initialized():
            return
        from fray.backends.ray.address import find_cluster  # not needed in Ray's worker processes

        found = find_cluster(address)
        options: dict[str, Any] = {}
        if address is not None:
            # The code of a client outside of the cluster has to get there.
            options["runtime_env"] = {"working_dir": os.getcwd()}
        _ray_logger.addFilter(_is_worth_telling)
        try:
            ray.init(address=found, namespace=namespace, log_to_driver=False, logging_level=logging.WARNING, **options)
        except ConnectionError as error:
            raise Unavailable(f"cannot connect to Ray at {found or 'its default address'}: {error}") from error
        finally:
            _ray_logger.removeFilter(_is_worth_telling)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    # Steps connect in threads of their own; what SIGTERM does there is not Ray's to say.
    return not record.getMessage().startswith("SIGTERM handler is not set")
