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
class ActorRef:
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
    """Names of the methods that handles of a class's actors can call."""
    return frozenset(name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name, None)))


class IrisActorFuture:
    """The result of a call of an actor on Iris."""

    def __init__(self, ref: ActorRef, method: str, call: ActorCall) -> None:
        self._ref = ref
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
        return f"{self._method!r} of actor {self._ref.label}"


class IrisActorMethod:
    """One method of an actor on Iris."""

    def __init__(self, handle: "IrisActorHandle", ref: ActorRef, name: str) -> None:
        self._handle = handle
        self._ref = ref
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_waiting_for_itself()
        return self.remote(*args, **kwargs).result()

    def remote(self, *args: Any, **kwargs: Any) -> IrisActorFuture:
        client = client_of(self._ref)
        call = client.call(self._name, args, kwargs, max_retries=self._ref.retries)
        return IrisActorFuture(self._ref, self._name, call)

    def submit(self, *args: Any, **kwargs: Any) -> IrisActorFuture:
        """As `remote`: every call outlives a lost connection."""
        return self.remote(*args, **kwargs)

    def _refuse_waiting_for_itself(self) -> None:
        if not self._ref.serial:
            return
        own = find_actor()
        if own is not None and own.handle == self._handle:
            raise Conflict(
                f"actor {self._ref.label} would wait for itself: {self._name!r} can run only after the current "
                "method; use .remote() without waiting, or ActorConfig(max_concurrency=2)"
            )


class IrisActorHandle:
    """An actor on Iris; its public methods are attributes."""

    def __init__(self, ref: ActorRef) -> None:
        self._ref = ref

    def __getattr__(self, name: str) -> IrisActorMethod:
        ref: ActorRef = object.__getattribute__(self, "_ref")
        if name.startswith("_"):
            raise AttributeError(f"actor {ref.label}: {name!r} is not public, so it cannot be called")
        if name not in ref.methods:
            raise AttributeError(f"actor {ref.label}: {ref.class_name} has no method {name!r}")
        return IrisActorMethod(self, ref, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IrisActorHandle) and other._ref == self._ref

    def __hash__(self) -> int:
        return hash(self._ref)

    def __repr__(self) -> str:
        return f"<actor {self._ref.label}>"

    def __reduce__(self) -> tuple[type["IrisActorHandle"], tuple[ActorRef]]:
        return IrisActorHandle, (self._ref,)


def handle_of(ref: ActorRef) -> ActorHandle:
    return IrisActorHandle(ref)


# ---- one connection an actor and process, however many handles there are ----

_lock = threading.Lock()
_clusters: "weakref.WeakValueDictionary[str, IrisClient]" = weakref.WeakValueDictionary()
_made_here: Final[dict[str, IrisClient]] = {}
_clients: Final[dict[tuple[str, str], ActorClient]] = {}


def know_cluster(client: IrisClient, address: str) -> None:
    """Let handles of that cluster's actors use this client while it lives."""
    with _lock:
        _clusters[address] = client


def client_of(ref: ActorRef) -> ActorClient:
    """The client of an actor in this process."""
    key = ref.key
    client = _clients.get(key)
    if client is None:
        use_grpc(f"actor {ref.label} cannot be called here")
        with _lock:
            client = _clients.get(key)
            if client is None:
                client = _clients[key] = _connect(ref)
    return client


def reach_within(ref: ActorRef, client: ActorClient) -> None:
    """Let handles of an actor of this process go the short way."""
    with _lock:
        _clients[ref.key] = client


def forget_cluster(client: IrisClient) -> None:
    """Let no handle use this client from here on."""
    with _lock:
        for key in [key for key, known in _clusters.items() if known is client]:
            del _clusters[key]


def renew_clients(refs: Iterable[ActorRef]) -> None:
    """End this process's connections to earlier actors of these names, so that calls go to those there are now."""
    with _lock:
        earlier = [client for ref in refs if (client := _clients.pop(ref.key, None)) is not None]
    for client in earlier:
        client.close()


def close_clients(refs: Iterable[ActorRef]) -> None:
    """End this process's connections to actors that are being shut down with their client."""
    for ref in refs:
        client = _clients.get(ref.key)
        if client is not None:
            client.close()


def _connect(ref: ActorRef) -> ActorClient:
    cluster = _cluster(ref.controller)
    if ref.name:
        return ActorClient(ref.name, client=cluster)
    return ActorClient.at(ref.address, ref.group, key=actor_key(cluster, ref.user))


def _cluster(address: str) -> IrisClient:
    context = get_iris_ctx()
    if context is not None and context.job.controller_address == address:
        return context.client
    client = _clusters.get(address)
    if client is None:
        client = _made_here[address] = _clusters[address] = IrisClient.remote(address)
    return client
