"""The location of an actor: a fixed address, or one found through the cluster's endpoints."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import grpc
import grpc.aio

from iris.actor.transport.loop import in_thread
from iris.client.connection.connection import Connection, is_away
from iris.client.endpoints import Endpoint as Registered
from iris.client.endpoints import EndpointSet, WatchState
from iris.rpc.controller_address import ControllerAddress
from iris.rpc.generated import endpoints_pb2 as pb
from iris.rpc.generated.endpoints_pb2_grpc import EndpointServiceStub
from iris.rpc.protocol import CHANNEL_OPTIONS, call_metadata
from iris.rpc.status_map import from_rpc_error
from rigging.errors import MarinError
from rigging.timing import ExponentialBackoff

ACTOR_KEY: Final = "actor"
"""Key of an endpoint's metadata: the actor's name on the server at its address."""


@dataclass(frozen=True, slots=True)
class Place:
    """The location of one life of an actor.

    Args:
        address: "host:port".
        life: Differs between two lives; empty for a fixed address.
        actor: Its name on that server.
    """

    address: str
    life: str
    actor: str


@dataclass(frozen=True, slots=True)
class Location:
    """The known location of an actor.

    Args:
        place: The current location, or None.
        ended: Why the actor will never have a location again; empty if it may have one.
        error: Why the location cannot be determined.
    """

    place: Place | None = None
    ended: str = ""
    error: MarinError | None = None


class Target(Protocol):
    """Locates an actor. Belongs to the event loop."""

    label: str

    @property
    def now(self) -> Location: ...

    def open(self, on_change: Callable[[], object]) -> None:
        """Start to follow the location. `on_change` is called whenever `now` changes."""
        ...

    def close(self) -> None:
        """Stop following the actor. `open` follows it again."""
        ...


class FixedPlace:
    """An actor at a fixed address."""

    def __init__(self, label: str, place: Place) -> None:
        self.label = label
        self._now = Location(place)

    @property
    def now(self) -> Location:
        return self._now

    def open(self, on_change: Callable[[], object]) -> None:
        del on_change

    def close(self) -> None:
        pass


class NamedPlace:
    """An actor found by its endpoint's full name. Among several endpoints it uses the latest, but stays with a live
    endpoint.

    Args:
        connection: The connection to the cluster.
        name: The endpoint's name.
        task_id: The only task that registers it. The actor ends with this task.
        make_watch: Creates the watch of the endpoint.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        task_id: str = "",
        make_watch: "Callable[..., EndpointWatch] | None" = None,
    ) -> None:
        self.label = name
        request = pb.WatchEndpointsRequest(name=name, task_id=task_id)
        self._watch = (make_watch or EndpointWatch)(connection, request, self._found, self._failed)
        self._now = Location()
        self._on_change: Callable[[], object] = _nothing

    @property
    def now(self) -> Location:
        return self._now

    def open(self, on_change: Callable[[], object]) -> None:
        self._on_change = on_change
        self._watch.start()

    def close(self) -> None:
        self._watch.stop()
        self._now = Location()

    def _found(self, found: EndpointSet) -> None:
        places = [place_of(endpoint) for endpoint in found.endpoints]
        place = self._now.place
        if place not in places:
            place = places[-1] if places else None
        self._set(Location(place, found.ended_reason if found.ended else ""))

    def _failed(self, error: MarinError) -> None:
        self._set(Location(error=error))

    def _set(self, now: Location) -> None:
        if now != self._now:
            self._now = now
            self._on_change()


class GroupMember:
    """One actor of a group. The group's watcher ends it."""

    def __init__(self, place: Place, label: str) -> None:
        self.label = label
        self._now = Location(place)
        self._on_change: Callable[[], object] = _nothing

    @property
    def now(self) -> Location:
        return self._now

    def open(self, on_change: Callable[[], object]) -> None:
        self._on_change = on_change

    def close(self) -> None:
        self._on_change = _nothing

    def end(self, reason: str) -> None:
        """Record that the actor is gone."""
        self._now = Location(None, reason)
        self._on_change()


class EndpointWatch:
    """Follows endpoints in the event loop, across restarts of the controller, until `stop`.

    Args:
        connection: The connection to the cluster.
        request: Selects the endpoints.
        on_change: Called with all endpoints after every change.
        on_error: Called with the error that ends the watch.
    """

    def __init__(
        self,
        connection: Connection,
        request: pb.WatchEndpointsRequest,
        on_change: Callable[[EndpointSet], object],
        on_error: Callable[[MarinError], object],
    ) -> None:
        self._connection = connection
        self._request = request
        self._on_change = on_change
        self._on_error = on_error
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        backoff = ExponentialBackoff(initial=0.02, maximum=1.0, factor=1.6, jitter=0.2)
        state = WatchState()
        while True:
            try:
                where = await in_thread(self._connection.controller_address)
                await self._follow(where, state, backoff)
            except grpc.aio.AioRpcError as error:
                if not is_away(error):
                    self._on_error(from_rpc_error(error))
                    return
            except MarinError as error:
                if not error.retryable:
                    self._on_error(error)
                    return
            await asyncio.sleep(backoff.next_interval())
            try:
                await in_thread(self._connection.reconnect)
            except MarinError as error:
                if not error.retryable:
                    self._on_error(error)
                    return

    async def _follow(self, where: ControllerAddress, state: WatchState, backoff: ExponentialBackoff) -> None:
        state.restart()
        async with grpc.aio.insecure_channel(where.address, options=CHANNEL_OPTIONS) as channel:
            stream = EndpointServiceStub(channel).Watch(self._request, metadata=call_metadata(where.token))
            async for update in stream:
                self._connection.note_answer()
                backoff.reset()
                if (found := state.take(update)) is not None:
                    self._on_change(found)


def place_of(endpoint: Registered) -> Place:
    """Return the location in an actor's endpoint."""
    actor = endpoint.metadata.get(ACTOR_KEY) or endpoint.name.rpartition("/")[2]
    return Place(endpoint.address, endpoint.attempt_id, actor)


def _nothing() -> None:
    pass
