"""The default client of the current code."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from fray.protocols import Client
from fray.registry import connect
from rigging.process.fork_lock import ForkLock

CLIENT_ENV = "FRAY_CLIENT"

C = TypeVar("C", bound=Client)

# Ray sets the one in its workers, the other in the driver of a submitted job.
_SET_INSIDE_RAY = ("RAY_JOB_ID", "RAY_JOB_CONFIG_JSON_ENV_VAR")

chosen_client: ContextVar[Client | None] = ContextVar("fray_client", default=None)
"""The client set by `set_current_client`; None outside of its block."""

_offered: ContextVar[Callable[[], Client] | None] = ContextVar("fray_offered_client", default=None)

_shared: dict[tuple[int, str], Client] = {}
_shared_lock = ForkLock()


@contextmanager
def set_current_client(client: C) -> Iterator[C]:
    """Make `current_client()` return `client` within the `with` block.

    Jobs and actors that the local backend starts inside the block inherit the client. Other threads inherit it only if
    started with `contextvars.copy_context()`: two threads can use two clients concurrently.
    """
    token = chosen_client.set(client)
    try:
        yield client
    finally:
        chosen_client.reset(token)


def adopt_client(client: Client) -> None:
    """For backends: make `client` the default in this contextvars context, unless one is set."""
    if chosen_client.get() is None:
        chosen_client.set(client)


def offer_client(make: Callable[[], Client]) -> None:
    """For backends: make the client that `make` returns the default in this contextvars context, unless one is set.

    The client is made on first use, because its modules take time to import.
    """
    _offered.set(make)


def close_shared_clients(wait: bool) -> None:
    """Shut down the clients that `current_client()` created in this process, before it ends."""
    with _shared_lock:
        here = [_shared.pop(key) for key in list(_shared) if key[0] == os.getpid()]
    for client in here:
        client.shutdown(wait=wait)


def default_spec(environ: Mapping[str, str]) -> str:
    """Return the spec of the default client: FRAY_CLIENT, else the cluster this process runs in, else local."""
    if spec := environ.get(CLIENT_ENV):
        return spec
    if environ.get("IRIS_JOB_ID") and environ.get("IRIS_CONTROLLER_ADDRESS"):
        return "iris"
    if any(environ.get(name) for name in _SET_INSIDE_RAY):
        return "ray"
    return "local"


def current_client() -> Client:
    """Return the client to submit jobs with.

    The first of these that applies: the client from `set_current_client`, or the backend of the surrounding job; the
    value of FRAY_CLIENT; Iris inside an Iris job; Ray inside a Ray job; local. All but the first are created once per
    process and spec, and again after a shutdown.

    Raises:
        InvalidRequest: FRAY_CLIENT names an unknown backend, or one that is not installed.
    """
    if (client := chosen_client.get()) is not None:
        return client
    if (make := _offered.get()) is not None:
        return make()
    spec = default_spec(os.environ)
    # A forked child must not use its parent's threads and connections: hence the process id in the key.
    key = (os.getpid(), spec)
    with _shared_lock:
        shared = _shared.get(key)
        if shared is None or shared.closed:
            shared = _shared[key] = connect(spec)
        return shared
