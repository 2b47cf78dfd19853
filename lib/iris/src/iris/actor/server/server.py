"""ActorServer: makes objects of this process callable from other processes."""

import asyncio
import contextlib
import contextvars
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final

import grpc.aio

from iris.actor.client.client import ActorClient
from iris.actor.client.keys import actor_key
from iris.actor.client.places import ACTOR_KEY
from iris.actor.client.resolvers import machine_key
from iris.actor.server.hosted import HostedActor, HostedCall
from iris.actor.server.in_process import InProcessCaller
from iris.actor.server.service import ActorService, ServerLoad
from iris.actor.transport.loop import run
from iris.actor.transport.payload import Dumps, by_cloudpickle
from iris.actor.transport.wire import handler_of
from iris.client.context import IrisContext, get_iris_ctx
from iris.rpc.forks import in_fork
from iris.rpc.protocol import SERVER_OPTIONS
from rigging.errors import AlreadyExists, Conflict, InvalidRequest, MarinError, NotFound

logger = logging.getLogger(__name__)

HOST_ENV: Final = "IRIS_ACTOR_HOST"
DEFAULT_HOST: Final = "127.0.0.1"

_MEMORY_BYTES: Final = 1 << 30
_SESSION_TIMEOUT_S: Final = 600.0
_FAREWELL_S: Final = 5.0

# A caller's message has at most one whole pickle (2 MiB), a chunk and small frames: see transport.frame_queue.
_OPTIONS: Final = (
    *(option for option in SERVER_OPTIONS if option[0] != "grpc.max_receive_message_length"),
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
)


class ActorServer:
    """Serves actors of this process. Use it as a context manager, or call `start` and `stop`. Thread-safe.

    with ActorServer() as server:
        server.register("counter", Counter())

    Inside an Iris job each actor is also registered as an endpoint of the task, so `ActorClient("counter")` finds it.
    Only the user and processes of the user's jobs can call the actor. Outside of a job and without a key, the server
    listens on loopback, whatever `host` is, and only this user's programs on this machine can call the actor.

    Args:
        host: The address to listen on and publish; None for $IRIS_ACTOR_HOST (set by workers), else loopback.
        port: The port; 0 for any free one.
        context: The task of this process; None detects it.
        key: The key that callers need; None for the user's, from the cluster or, outside of a job, of this machine.
        memory_bytes: Maximum size of queued large arguments before callers are held back.
        session_timeout: How long a caller may be disconnected without losing calls and results, in seconds.
        dumps: Pickles results and exceptions that are not plain.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int = 0,
        *,
        context: IrisContext | None = None,
        key: bytes | None = None,
        memory_bytes: int = _MEMORY_BYTES,
        session_timeout: float = _SESSION_TIMEOUT_S,
        dumps: Dumps = by_cloudpickle,
    ) -> None:
        self._host = host or os.environ.get(HOST_ENV) or DEFAULT_HOST
        self._port = port
        self._context = context if context is not None else get_iris_ctx()
        self._key = key
        self._memory_bytes = memory_bytes
        self._session_timeout = session_timeout
        self._dumps = dumps
        self._actors: dict[str, HostedActor] = {}
        self._endpoints: list[str] = []
        self._inward: list[InProcessCaller] = []
        self._service: ActorService | None = None
        self._server: grpc.aio.Server | None = None
        self._address = ""
        self._stopped = False
        self._gone = threading.Event()
        self._to_register: list[Callable[[], None]] = []

    @property
    def address(self) -> str:
        """The server's "host:port". Raise Conflict before `start`."""
        if not self._address:
            raise Conflict("this ActorServer has not been started: call start() first")
        return self._address

    def start(self) -> str:
        """Listen and return the address.

        Raises:
            Conflict: The server was already started or stopped, or the port is taken.
        """
        self._refuse_stopped()
        if self._server is not None:
            raise Conflict(f"this ActorServer was started before, at {self._address}")
        if self._key is None:
            if self._context is not None:
                self._key = actor_key(self._context.client)
            else:
                self._key, self._host = machine_key(), _loopback(self._host)
        if not isinstance(self._key, bytes):
            raise InvalidRequest(f"the key of an ActorServer must be bytes, not {type(self._key).__name__}")
        run(self._start(self._key))
        for register in self._to_register:
            register()
        return self._address

    def serve_background(self, port: int | None = None) -> int:
        """Listen, unless the server is already listening, and return the port.

        Args:
            port: Overrides the constructor's port.

        Raises:
            Conflict: As in `start`.
        """
        if port is not None and self._server is None:
            self._port = port
        address = self._address if self._server is not None else self.start()
        return int(address.rpartition(":")[2])

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server is stopped. Return False after `timeout` seconds."""
        return self._gone.wait(timeout)

    def register(
        self,
        name: str,
        instance: object,
        *,
        max_concurrency: int = 1,
        metadata: Mapping[str, str] | None = None,
        publish: bool = True,
    ) -> None:
        """Make the public methods of `instance` callable once the server has started.

        Args:
            name: The actor's name here and, inside a job, the name of its endpoint (see `EndpointRegistry.register`).
            instance: The object. Its public methods become callable.
            max_concurrency: Number of concurrent calls, in threads; 1 runs them one after another, in each caller's
                order.
            metadata: The endpoint's metadata.
            publish: Whether to create an endpoint. If not, callers need the address.

        Raises:
            AlreadyExists: This server has an actor with the name. Conflict: The server was stopped. InvalidRequest: The
                name is empty.
            MarinError: The controller refused the endpoint. The actor is not registered.
        """
        self._refuse_stopped()
        if not name or not isinstance(name, str):
            raise InvalidRequest(f"name of an actor: must be a text that is not empty, not {name!r}")
        if self._server is None:
            later = partial(
                self.register, name, instance, max_concurrency=max_concurrency, metadata=metadata, publish=publish
            )
            self._to_register.append(later)
            return
        address = self.address
        if max_concurrency < 1:
            raise InvalidRequest(f"actor {name!r}: max_concurrency must be at least 1, not {max_concurrency}")
        if name in self._actors:
            raise AlreadyExists(f"this ActorServer has an actor {name!r} already")
        service = self._service
        assert service is not None
        actor = HostedActor(name, instance, max_concurrency, self._begun, service.finished.put, self._dumps)
        actor.start(contextvars.copy_context())
        self._actors[name] = actor
        if self._context is None or not publish:
            return
        try:
            self._context.registry.register(name, address, {**(metadata or {}), ACTOR_KEY: name})
        except BaseException:
            del self._actors[name]
            actor.stop()
            raise
        self._endpoints.append(name)

    def unregister(self, name: str, grace: float = 5.0) -> None:
        """Refuse new calls to one actor and calls that have not started, and give running calls `grace` seconds.

        The name becomes free. Does nothing for an unknown name.
        """
        actor = self._actors.pop(name, None)
        if actor is None:
            return
        if name in self._endpoints:
            assert self._context is not None
            self._endpoints.remove(name)
            with contextlib.suppress(MarinError):
                self._context.registry.unregister(name, retry=False)
        actor.stop()
        actor.refuse_waiting(f"actor {name!r} was shut down")
        actor.wait_idle(grace)

    def own_client(self, name: str) -> ActorClient:
        """Return a client for calls from this process, put directly into the actor's queue. Raise NotFound."""
        actor = self._actors.get(name)
        if actor is None:
            raise NotFound(f"this ActorServer has no actor {name!r}; it has {', '.join(self._actors) or 'none'}")
        caller = InProcessCaller(actor)
        self._inward.append(caller)
        return ActorClient.of(caller)

    def stop(self, grace: float = 5.0) -> None:
        """Refuse new calls and calls that have not started, and give running calls `grace` seconds to end.

        Does nothing in a fork.
        """
        server, service = self._server, self._service
        if server is None or service is None or in_fork():
            return
        self._server = None
        self._stopped = True
        for name in self._endpoints:
            assert self._context is not None
            # They go with the attempt in any case: a controller that is away must not hold up the end.
            with contextlib.suppress(MarinError):
                self._context.registry.unregister(name, retry=False)
        run(self._refuse_new())
        for caller in self._inward:
            caller.stop()
        for actor in self._actors.values():
            actor.stop()
        end = time.monotonic() + grace
        for actor in self._actors.values():
            actor.wait_idle(max(0.0, end - time.monotonic()))
        run(_end(server, service))
        self._service = None
        self._gone.set()

    @property
    def load(self) -> ServerLoad:
        """Return the current number of sessions and bytes kept for callers; zero before `start`."""
        return self._service.load if self._service is not None else ServerLoad(0, 0)

    def __enter__(self) -> "ActorServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _refuse_stopped(self) -> None:
        if self._stopped:
            raise Conflict(f"this ActorServer, at {self._address}, was stopped; make a new one")

    def _begun(self, call: HostedCall) -> None:
        if call.size and self._service is not None:
            self._service.begun.put(call)

    async def _start(self, key: bytes) -> None:
        self._service = ActorService(uuid.uuid4().hex, key, self._actors, self._memory_bytes, self._session_timeout)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((handler_of(self._service.connect),))
        try:
            port = server.add_insecure_port(f"{self._host}:{self._port}")
        except RuntimeError as error:
            raise Conflict(
                f"an ActorServer cannot listen on {self._host}:{self._port}: port taken, or not a host of this machine"
            ) from error
        await server.start()
        self._server, self._address = server, f"{self._host}:{port}"

    async def _refuse_new(self) -> None:
        assert self._service is not None
        self._service.refuse_new("the actor was shut down")


def _loopback(host: str) -> str:
    if host in ("127.0.0.1", "localhost", "::1"):
        return host
    if host not in ("0.0.0.0", "::"):
        logger.warning("this ActorServer has no key of a cluster: it listens on loopback, and not on %s", host)
    return DEFAULT_HOST


async def _end(server: Any, service: ActorService) -> None:
    try:
        async with asyncio.timeout(_FAREWELL_S):
            await service.say_goodbye()
    except TimeoutError:
        pass  # a client that does not read must not hold up the end
    await server.stop(0.2)
