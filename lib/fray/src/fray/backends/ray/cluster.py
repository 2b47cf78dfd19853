"""Typed questions to Ray about its cluster, and where it cannot be asked."""

import contextlib
import logging
import os
import re
import socket
import threading
import time
from typing import Any, cast

import ray

from rigging.errors import Conflict, Unavailable

PROBE_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
_HOST_AND_PORT = re.compile(r"(?:ray://)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:/\s]+)):(?P<port>\d{1,5})(?:[/?].*)?")
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_HEADER_BYTES = 9
_SETTINGS_FRAME = 4

_LATELY_SECONDS = 1.0

_in_fork = False
_free: tuple[float, dict[str, float]] = (float("-inf"), {})
_asking = threading.Lock()
_connecting = threading.Lock()


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
    """Resources of all living nodes together."""
    return cast("dict[str, float]", ray.cluster_resources())  # type: ignore[no-untyped-call]


def free_resources() -> dict[str, float]:
    """The part of `resources` that is not taken; Ray is a moment behind."""
    return cast("dict[str, float]", ray.available_resources())  # type: ignore[no-untyped-call]


def free_resources_lately(seconds: float = _LATELY_SECONDS) -> dict[str, float]:
    """`free_resources`, asked for at most once in so many seconds: thousands of queued jobs may want to know."""
    global _free
    with _asking:
        now = time.monotonic()
        if now >= _free[0] + seconds:
            _free = (now, free_resources())
        return _free[1]


def is_remote() -> bool:
    """Whether this process is connected through `ray://`, and so is not on a node of the cluster."""
    return bool(ray.util.client.ray.is_connected())  # type: ignore[no-untyped-call]


def ensure_connected(address: str | None, namespace: str) -> None:
    """Connect this process to Ray, unless it is connected.

    Raises:
        Unavailable: No cluster answers.
    """
    refuse_forks("the Ray backend")
    with _connecting:
        if not ray.is_initialized():
            check_reachable(address)
            options: dict[str, Any] = {}
            if address is not None:
                # The code of a client outside of the cluster has to get there.
                options["runtime_env"] = {"working_dir": os.getcwd()}
            try:
                ray.init(
                    address=address, namespace=namespace, log_to_driver=False, logging_level=logging.WARNING, **options
                )
            except ConnectionError as error:
                raise Unavailable(f"cannot connect to Ray at {address or 'its default address'}: {error}") from error


def check_reachable(address: str | None, timeout: float = PROBE_SECONDS) -> None:
    """Look whether a gRPC server answers where `ray.init` would connect; that waits more than a minute and a half.

    Addresses that name no host and port ("auto", "local") are Ray's to look after.

    Args:
        address: As for `ray.init`; None for the one in RAY_ADDRESS.
        timeout: Seconds until it is given up.

    Raises:
        Unavailable: Nothing answers there.
    """
    given_by = "as given"
    if address is None or address == "auto":
        address, given_by = os.environ.get("RAY_ADDRESS", ""), "from RAY_ADDRESS"
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None:
        return
    target = (found["v6"] or found["host"], int(found["port"]))
    deadline = time.monotonic() + timeout
    while (problem := _problem(target, deadline)) is not None:
        # A head that is being started may listen in a moment.
        if time.monotonic() + _PAUSE_SECONDS >= deadline:
            raise Unavailable(
                f"no Ray cluster answers at {address!r} ({given_by}): {problem}. Start the cluster, or give the "
                "address of one that runs (RAY_ADDRESS=host:port, FRAY_CLIENT=ray://host:port); unset RAY_ADDRESS "
                "to use or start one on this machine; or choose another backend, for example FRAY_CLIENT=local"
            )
        time.sleep(_PAUSE_SECONDS)


def _problem(target: tuple[str, int], deadline: float) -> str | None:
    """Why no gRPC server can be spoken to there; None when one can."""
    try:
        with contextlib.closing(socket.create_connection(target, _left(deadline))) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("0", ""):
                return None
            connection.sendall(_HTTP2_PREFACE)
            header = b""
            while len(header) < _FRAME_HEADER_BYTES:
                connection.settimeout(_left(deadline))
                chunk = connection.recv(_FRAME_HEADER_BYTES - len(header))
                if not chunk:
                    return "the connection was closed without an answer"
                header += chunk
    except TimeoutError:
        return "no answer in time"
    except (OSError, OverflowError, UnicodeError) as error:
        return (isinstance(error, OSError) and error.strerror) or str(error)
    return None if header[3] == _SETTINGS_FRAME else "what listens there is no gRPC server"


def _left(deadline: float) -> float:
    return max(0.01, deadline - time.monotonic())
