"""Handles of actors on Iris: small values that reach the actor from wherever they are unpickled."""

import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from fray.actor import ActorHandle, find_actor
from fray.errors import ActorLost, JobFailed
from iris.actor import ActorCall, ActorClient, ActorDied, ActorStopped, RemoteError, actor_key
from iris.client import IrisClient, get_iris_ctx, use_grpc
from rigging.errors import Conflict


@dataclass(frozen=True, slots=True)
class ActorSpot:
    """Where an actor is and what it offers; all that a handle holds.

    Args:
        controller: "host:port" of its cluster.
        name: The full name of its endpoint; empty when it lives outside of any job, at `address`.
        user: Whose it is.
        group, index: Its place, for people.
        methods: What may be called.
        serial: Whether it runs one call at a time.
        retries: How often a call is made again after the actor was lost; -1: without limit.
    """

    controller: str
    name: str
    address: str
    user: str
    group: str
    index: int
    class_name: str
    methods: frozenset[str]
    serial: bool
    retries: int

    @property
    def label(self) -> str:
        """The actor, for people."""
        return f"{self.group!r} [{self.index}]"

    @property
    def key(self) -> tuple[str, str]:
        """Tells actors apart within this process."""
        return self.controller, self.name or f"{self.address} {self.group}"


def public_methods(cls: type[Any]) -> frozenset[str]:
    """What can be called on an actor of a class."""
    return frozenset(name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name, None)))


class IrisActorFuture:
    """The result of a call of an actor on Iris."""

    def __init__(self, spot: ActorSpot, method: str, call: ActorCall) -> None:
        self._spot = spot
        self._method = method
        self._call = call

    def result(self, timeout: float | None = None) -> Any:
        try:
            return self._call.result(timeout)
        except ActorDied as error:
            raise ActorLost(f"{self._what}: {error}") from None
        except ActorStopped:
            raise Conflict(f"{self._what}: the actor was shut down before the call began") from None
        except RemoteError as error:
            raise JobFailed(f"{self._what}: {error}") from error.__cause__

    def done(self) -> bool:
        return self._call.done()

    @property
    def _what(self) -> str:
        return f"{self._method!r} of actor {self._spot.label}"


class IrisActorMethod:
    """One method of an actor on Iris."""

    def __init__(self, handle: "IrisActorHandle", spot: ActorSpot, name: str) -> None:
        self._handle = handle
        self._spot = spot
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_waiting_for_itself()
        return self.remote(*args, **kwargs).result()

    def remote(self, *args: Any, **kwargs: Any) -> IrisActorFuture:
        client = client_of(self._spot)
        call = client.call(self._name, args, kwargs, max_retries=self._spot.retries)
        return IrisActorFuture(self._spot, self._name, call)

    def submit(self, *args: Any, **kwargs: Any) -> IrisActorFuture:
        """As `remote`: every call outlives a lost connection."""
        return self.remote(*args, **kwargs)

    def _refuse_waiting_for_itself(self) -> None:
        if not self._spot.serial:
            return
        own = find_actor()
        if own is not None and own.handle == self._handle:
            raise Conflict(
                f"actor {self._spot.label} would wait for itself: {self._name!r} can run only after the current "
                "method; use .remote() without waiting, or ActorConfig(max_concurrency=2)"
            )


class IrisActorHandle:
    """An actor on Iris; its public methods are attributes."""

    def __init__(self, spot: ActorSpot) -> None:
        self._spot = spot

    def __getattr__(self, name: str) -> IrisActorMethod:
        spot: ActorSpot = object.__getattribute__(self, "_spot")
        if name.startswith("_"):
            raise AttributeError(f"actor {spot.label}: {name!r} is not public, so it cannot be called")
        if name not in spot.methods:
            raise AttributeError(f"actor {spot.label}: {spot.class_name} has no method {name!r}")
        return IrisActorMethod(self, spot, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IrisActorHandle) and other._spot == self._spot

    def __hash__(self) -> int:
        return hash(self._spot)

    def __repr__(self) -> str:
        return f"<actor {self._spot.label}>"

    def __reduce__(self) -> tuple[type["IrisActorHandle"], tuple[ActorSpot]]:
        return IrisActorHandle, (self._spot,)


def handle_of(spot: ActorSpot) -> ActorHandle:
    return IrisActorHandle(spot)


# ---- one connection an actor and process, however many handles there are ----

_lock = threading.Lock()
_clusters: "weakref.WeakValueDictionary[str, IrisClient]" = weakref.WeakValueDictionary()
_made_here: Final[dict[str, IrisClient]] = {}
_clients: Final[dict[tuple[str, str], ActorClient]] = {}


def know_cluster(client: IrisClient, address: str) -> None:
    """Let handles of that cluster's actors use this client while it lives."""
    with _lock:
        _clusters[address] = client


def client_of(spot: ActorSpot) -> ActorClient:
    """The client of an actor in this process."""
    key = spot.key
    client = _clients.get(key)
    if client is None:
        use_grpc(f"actor {spot.label} cannot be called here")
        with _lock:
            client = _clients.get(key)
            if client is None:
                client = _clients[key] = _connect(spot)
    return client


def reach_within(spot: ActorSpot, client: ActorClient) -> None:
    """Let handles of an actor of this process go the short way."""
    with _lock:
        _clients[spot.key] = client


def forget_cluster(client: IrisClient) -> None:
    """Let no handle use this client from here on."""
    with _lock:
        for key in [key for key, known in _clusters.items() if known is client]:
            del _clusters[key]


def renew_clients(spots: Iterable[ActorSpot]) -> None:
    """End this process's connections to earlier actors of these names, so that calls go to those there are now."""
    with _lock:
        earlier = [client for spot in spots if (client := _clients.pop(spot.key, None)) is not None]
    for client in earlier:
        client.close()


def close_clients(spots: Iterable[ActorSpot]) -> None:
    """End this process's connections to actors that are being shut down with their client."""
    for spot in spots:
        client = _clients.get(spot.key)
        if client is not None:
            client.close()


def _connect(spot: ActorSpot) -> ActorClient:
    cluster = _cluster(spot.controller)
    if spot.name:
        return ActorClient(spot.name, client=cluster)
    return ActorClient.at(spot.address, spot.group, key=actor_key(cluster, spot.user))


def _cluster(address: str) -> IrisClient:
    context = get_iris_ctx()
    if context is not None and context.job.controller_address == address:
        return context.client
    client = _clusters.get(address)
    if client is None:
        client = _made_here[address] = _clusters[address] = IrisClient.remote(address)
    return client
