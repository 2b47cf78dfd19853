"""References to actors on Iris: small values that work in every process."""

import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fray.actor import ActorFuture
from fray.backends.common.actors import CallFuture, is_current_actor
from fray.errors import ActorLost, JobFailed
from fray.sending import pickling
from iris.actor import ActorCall, ActorClient, ActorDied, ActorStopped, RemoteError, actor_key, by_cloudpickle
from iris.client import IrisClient, get_iris_ctx, use_grpc


@dataclass(frozen=True, slots=True)
class IrisActorRef:
    """An actor's address and methods: the complete content of a handle.

    Args:
        controller: "host:port" of the cluster's controller.
        name: The full name of its endpoint; empty for an actor outside of any job, at `address`.
        user: The user who owns it.
        group, index: Its group and index, for messages.
        methods: The methods that can be called.
        serial: Whether the actor runs one call at a time.
        retries: Maximum number of retries of a call after the actor was lost; -1 means no limit.
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
        """A readable name of the actor."""
        return f"{self.group!r} [{self.index}]"

    def runs_here(self) -> bool:
        return self.serial and is_current_actor(self)

    def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "IrisActorFuture":
        """Send a call that survives a lost connection.

        Args:
            method: Name of a public method.
            args: Positional arguments.
            kwargs: Keyword arguments.
        """
        call = client_of(self).call(method, args, dict(kwargs), max_retries=self.retries, dumps=dumps)
        return IrisActorFuture(self, method, call)

    @property
    def key(self) -> tuple[str, str]:
        """Identify the actor within this process."""
        return self.controller, self.name or f"{self.address} {self.group}"


class IrisActorFuture(CallFuture):
    """The future result of a call of an actor on Iris."""

    def __init__(self, ref: IrisActorRef, method: str, call: ActorCall) -> None:
        super().__init__(ref, method)
        self._call = call

    def result(self, timeout: float | None = None) -> Any:
        try:
            return self._call.result(timeout)
        except ActorDied as error:
            raise ActorLost(f"{self._what}: {error}") from None
        except ActorStopped:
            raise self._never_began() from None
        except RemoteError as error:
            raise JobFailed(f"{self._what}: {error}") from error.__cause__

    def done(self) -> bool:
        return self._call.done()

    def _take_back(self) -> bool:
        return self._call.withdraw()

    def add_done_callback(self, callback: Callable[[ActorFuture[Any]], object]) -> None:
        self._call.add_done_callback(lambda _: callback(self))


# ---- one connection an actor and process, however many handles there are ----

_lock = threading.Lock()
_clusters: "weakref.WeakValueDictionary[str, IrisClient]" = weakref.WeakValueDictionary()
_made_here: Final[dict[str, IrisClient]] = {}
_clients: Final[dict[tuple[str, str], ActorClient]] = {}
_workspaces: "Final[weakref.WeakKeyDictionary[IrisClient, set[str]]]" = weakref.WeakKeyDictionary()


def know_cluster(client: IrisClient, address: str) -> None:
    """Let handles of a cluster's actors use this client while it exists."""
    with _lock:
        _clusters[address] = client


def know_workspace(client: IrisClient, path: str) -> None:
    """Pickle calls and results like this client's actor classes, whose workspace they share.

    Otherwise an actor could receive a class by value once and by name later: as two classes, or not at all.
    """
    with _lock:
        _workspaces.setdefault(client, set()).add(os.path.realpath(path))


def dumps(value: object, goes_inside: Callable[[pickle.PickleBuffer], bool]) -> bytes:
    """Pickle an actor's arguments or result, by value where this process's actors cannot import it."""
    with _lock:
        folders = set[str]().union(*_workspaces.values())
    return pickling.dumps_apart(value, folders, goes_inside) if folders else by_cloudpickle(value, goes_inside)


def client_of(ref: IrisActorRef) -> ActorClient:
    """Return the client for an actor, within this process."""
    key = ref.key
    client = _clients.get(key)
    if client is None:
        use_grpc(f"actor {ref.label} cannot be called here")
        with _lock:
            client = _clients.get(key)
            if client is None:
                client = _clients[key] = _connect(ref)
    return client


def reach_within(ref: IrisActorRef, client: ActorClient) -> None:
    """Let handles of an actor in this process call it directly."""
    with _lock:
        _clients[ref.key] = client


def forget_cluster(client: IrisClient) -> None:
    """Stop handles from using this client."""
    with _lock:
        for key in [key for key, known in _clusters.items() if known is client]:
            del _clusters[key]
        _workspaces.pop(client, None)


def renew_clients(refs: Iterable[IrisActorRef]) -> None:
    """Close connections to earlier actors of these names, so that calls reach the current ones."""
    with _lock:
        earlier = [client for ref in refs if (client := _clients.pop(ref.key, None)) is not None]
    for client in earlier:
        client.close()


def close_clients(refs: Iterable[IrisActorRef]) -> None:
    """Close connections to actors that are shut down with their client."""
    for ref in refs:
        client = _clients.get(ref.key)
        if client is not None:
            client.close()


def _connect(ref: IrisActorRef) -> ActorClient:
    cluster = _cluster(ref.controller)
    if ref.name:
        return ActorClient(ref.name, client=cluster, task_id=f"{ref.name.rpartition('/')[0]}/{ref.index}")
    return ActorClient.at(ref.address, ref.group, key=actor_key(cluster, ref.user))


def _cluster(address: str) -> IrisClient:
    context = get_iris_ctx()
    if context is not None and context.job.controller_address == address:
        return context.client
    client = _clusters.get(address)
    if client is None:
        client = _made_here[address] = _clusters[address] = IrisClient.remote(address)
    return client
