"""ActorPool: the actors under one name."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, overload

from iris.actor.client.call import ActorCall
from iris.actor.client.caller import DEFAULT_LIMITS, ClientLimits
from iris.actor.client.client import ActorClient
from iris.actor.client.follow import EndpointFollower
from iris.actor.client.keys import actor_key, key_of_addresses
from iris.actor.client.places import GroupMember, Place, place_of
from iris.actor.client.pool_calls import OLD_TIMEOUT_S, Broadcast, Follower, NothingToFollow, PoolMethods
from iris.actor.client.resolvers import FixedResolver, ProxyResolver
from iris.actor.transport.loop import Closing
from iris.client.client import IrisClient
from iris.client.context import get_iris_ctx
from iris.client.endpoints import EndpointResolver, EndpointSet
from iris.domain.ids import user_of
from iris.rpc.forks import in_fork
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest, Unavailable


class ActorPool(Closing):
    """All current actors with an endpoint name, e.g. of the replicas of a job. Thread-safe.

    pool = ActorPool("worker")
    pool.call("score", (batch,)).result() # one of them, in rotation [call.result() for call in pool.broadcast("reset")]

    The older form is `ActorPool(resolver, "worker").call().score(batch)`, which waits for the result, and
    `.broadcast().reset().wait_all()`.

    Args:
        resolver: The actors' name, if it is the only argument. Otherwise it locates actors, as in `ActorClient`.
        name: The endpoints' name: a leaf inside a job, the full name anywhere.
        timeout: Default timeout of calls in seconds; None for no limit, or 30 with a resolver.
        client: The cluster; None for that of the current job.
        limits: The limits of each actor's client.
    """

    def __init__(
        self,
        resolver: str | FixedResolver | ProxyResolver | EndpointResolver = "",
        name: str = "",
        timeout: float | None = None,
        *,
        client: IrisClient | None = None,
        limits: ClientLimits = DEFAULT_LIMITS,
    ) -> None:
        if isinstance(resolver, str):
            name = resolver or name
        elif timeout is None:
            timeout = OLD_TIMEOUT_S
        self._name = name
        self._timeout = timeout
        self._limits = limits
        self._lock = threading.Lock()
        self._members: dict[Place, tuple[GroupMember, ActorClient]] = {}
        self._order: list[ActorClient] = []
        self._turn = 0
        self._ended = ""
        self._closed = False
        self._follower: Follower = NothingToFollow()
        if isinstance(resolver, FixedResolver):
            for address in resolver.addresses(name):
                place = Place(address, "", name)
                self._members[place] = self._join_at(place)
            self._order = [each for _, each in self._members.values()]
            return
        if isinstance(resolver, ProxyResolver):
            client = resolver.client
        context = get_iris_ctx() if client is None else None
        cluster = client or (context.client if context else None)
        if cluster is None:
            raise InvalidRequest(f"ActorPool({name!r}): outside of an Iris job, name the cluster: client=...")
        self._cluster = cluster
        self._follower = EndpointFollower(cluster, name, on_change=self._found)

    @property
    def size(self) -> int:
        """The number of current actors."""
        with self._lock:
            return len(self._order)

    @property
    def members(self) -> list[ActorClient]:
        """Return a client for each current actor."""
        with self._lock:
            return list(self._order)

    @property
    def timeout(self) -> float | None:
        """Default timeout of calls in seconds; None for no limit."""
        return self._timeout

    def wait_for_size(self, size: int, timeout: float = 300.0) -> None:
        """Wait until at least `size` actors are available.

        Raises:
            DeadlineExceeded: Fewer were available after `timeout` seconds. Unavailable: The job has ended, so no more
                will appear.
            Conflict: The pool was closed.
        """
        if self.size >= size:
            return
        try:
            self._follower.wait_for(lambda found: found.ended or self.size >= size, timeout)
        except DeadlineExceeded:
            raise DeadlineExceeded(f"{self.size} of {size} actors {self._name!r} after {timeout:g} s") from None
        except Conflict:
            self._raise_if_closed()
            raise
        if self.size < size:
            self._raise_if_over()

    @overload
    def call(self) -> PoolMethods: ...

    @overload
    def call(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ActorCall: ...

    def call(
        self,
        method: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ActorCall | PoolMethods:
        """Call a method of one actor, in rotation. Without a method, return an object whose methods call and wait.

        Args:
            method: The method's name; None to get the object.
            args: Positional arguments.
            kwargs: Keyword arguments.
            timeout: Timeout in seconds; None for the pool's default.

        Raises:
            Unavailable: There is no actor. Conflict: The pool was closed.
        """
        if method is None:
            return PoolMethods(lambda name, args, kwargs: self.call(name, args, kwargs).result())
        with self._lock:
            if not self._order:
                self._raise_if_over()
                raise Unavailable(f"no actor {self._name!r} answers now")
            self._turn = (self._turn + 1) % len(self._order)
            member = self._order[self._turn]
        return member.call(method, args, kwargs, timeout=timeout)

    @overload
    def broadcast(self) -> PoolMethods: ...

    @overload
    def broadcast(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Sequence[ActorCall]: ...

    def broadcast(
        self,
        method: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Sequence[ActorCall] | PoolMethods:
        """Call a method of every current actor. The calls are in the order of `members`.

        Without a method, return an object whose methods return a `Broadcast`. Raise Conflict if the pool was closed.

        Args:
            method: The method's name; None to get the object.
            args: Positional arguments.
            kwargs: Keyword arguments.
            timeout: Timeout of each call in seconds; None for the pool's default.
        """
        if method is None:
            return PoolMethods(lambda name, args, kwargs: Broadcast(self.broadcast(name, args, kwargs)))
        with self._lock:
            self._raise_if_closed()
            members = list(self._order)
        return [member.call(method, args, kwargs, timeout=timeout) for member in members]

    def close(self) -> None:
        """Stop following, and close the connections. Does nothing in a fork."""
        if in_fork():
            return
        self._closed = True
        self._follower.close()
        with self._lock:
            clients = [client for _, client in self._members.values()]
            self._members, self._order = {}, []
        for client in clients:
            client.close()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise Conflict(f"the ActorPool of {self._name!r} was closed; make a new one")

    def _raise_if_over(self) -> None:
        self._raise_if_closed()
        if self._follower.error is not None:
            raise self._follower.error.with_traceback(None)
        if self._ended:
            raise Unavailable(f"no actor {self._name!r} will answer: {self._ended}")

    def _found(self, found: EndpointSet) -> None:
        """Handle a change of the actors, in the event loop."""
        places = {place_of(endpoint): endpoint.name for endpoint in found.endpoints}
        with self._lock:
            for place in [place for place in self._members if place not in places]:
                member, _ = self._members.pop(place)
                member.end(f"{place.life} has ended")
            for place, name in places.items():
                if place not in self._members:
                    self._members[place] = self._join(place, name)
            self._order = [client for _, client in self._members.values()]
            self._ended = found.ended_reason if found.ended else ""

    def _join_at(self, place: Place) -> tuple[GroupMember, ActorClient]:
        member = GroupMember(place, f"{self._name!r} at {place.address}")
        return member, ActorClient.to(member, key_of_addresses(), timeout=self._timeout, limits=self._limits)

    def _join(self, place: Place, name: str) -> tuple[GroupMember, ActorClient]:
        member = GroupMember(place, f"{name} ({place.life})")
        user = user_of(name)
        client = ActorClient.to(
            member, lambda: actor_key(self._cluster, user), timeout=self._timeout, limits=self._limits
        )
        return member, client
