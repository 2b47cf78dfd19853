"""ActorPool: the actors that answer under one name, as one."""

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from iris.actor.client.client import ActorCall, ActorClient
from iris.actor.client.keys import actor_key
from iris.actor.client.places import EndpointWatch, GroupMember, Place, place_of
from iris.actor.transport.loop import run
from iris.client.client import IrisClient
from iris.client.context import get_iris_ctx
from iris.client.endpoints import EndpointSet
from iris.domain.ids import user_of
from iris.rpc.forks import in_fork
from rigging.errors import Conflict, DeadlineExceeded, InvalidRequest, MarinError, Unavailable


class ActorPool:
    """All actors of an endpoint name (e.g. registered by the replicas of a job), kept current by a watch. Thread-safe.

    pool = ActorPool("worker")
    pool.call("score", (batch,)).result()            # one of them, in turn
    [call.result() for call in pool.broadcast("reset")]

    Args:
        name: Of the endpoints: a leaf inside a job, the full name anywhere.
        client: The cluster; None: that of the job this runs in.
        timeout: Seconds that calls may take, where they do not say; None: no limit.
    """

    def __init__(self, name: str, *, client: IrisClient | None = None, timeout: float | None = None) -> None:
        context = get_iris_ctx() if client is None else None
        cluster = client or (context.client if context else None)
        if cluster is None:
            raise InvalidRequest(f"ActorPool({name!r}): outside of an Iris job say which cluster: client=...")
        self._name = name
        self._cluster = cluster
        self._timeout = timeout
        self._changed = threading.Condition()
        self._members: dict[Place, tuple[GroupMember, ActorClient]] = {}
        self._order: list[ActorClient] = []
        self._turn = 0
        self._ended = ""
        self._error: MarinError | None = None
        self._closed = False
        self._watch = run(self._start())

    @property
    def size(self) -> int:
        """Number of actors that answer now."""
        with self._changed:
            return len(self._order)

    @property
    def members(self) -> list[ActorClient]:
        """A client for each of those that answer now."""
        with self._changed:
            return list(self._order)

    def wait_for_size(self, size: int, timeout: float = 300.0) -> None:
        """Return when at least so many answer.

        Raises:
            DeadlineExceeded: Not that many after `timeout` seconds. Unavailable: The job has ended: none will come.
            Conflict: The pool was closed.
        """
        end = time.monotonic() + timeout
        with self._changed:
            while len(self._order) < size:
                self._raise_if_over()
                if not self._changed.wait(max(0.0, end - time.monotonic())) and time.monotonic() >= end:
                    raise DeadlineExceeded(f"{len(self._order)} of {size} actors {self._name!r} after {timeout:g} s")

    def call(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ActorCall:
        """Call a method of one of the actors, each in its turn.

        Raises:
            Unavailable: There is none. Conflict: The pool was closed.
        """
        with self._changed:
            if not self._order:
                self._raise_if_over()
                raise Unavailable(f"no actor {self._name!r} answers now")
            self._turn = (self._turn + 1) % len(self._order)
            member = self._order[self._turn]
        return member.call(method, args, kwargs, timeout=timeout)

    def broadcast(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Sequence[ActorCall]:
        """Call a method of every actor that answers now; the calls are in the order of `members`.

        Raises Conflict when the pool was closed.
        """
        with self._changed:
            self._raise_if_closed()
            members = list(self._order)
        return [member.call(method, args, kwargs, timeout=timeout) for member in members]

    def close(self) -> None:
        """Look no more, and end the connections. Nothing in a fork."""
        if in_fork():
            return
        run(self._stop())
        with self._changed:
            clients = [client for _, client in self._members.values()]
            self._members, self._order, self._closed = {}, [], True
            self._changed.notify_all()
        for client in clients:
            client.close()

    def __enter__(self) -> "ActorPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise Conflict(f"the ActorPool of {self._name!r} was closed; make a new one")

    def _raise_if_over(self) -> None:
        self._raise_if_closed()
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._ended:
            raise Unavailable(f"no actor {self._name!r} will answer: {self._ended}")

    async def _start(self) -> EndpointWatch:
        request = self._cluster.resolver.watch_request(self._name)
        watch = EndpointWatch(self._cluster.connection, request, self._found, self._failed)
        watch.start()
        return watch

    async def _stop(self) -> None:
        self._watch.stop()

    def _found(self, found: EndpointSet) -> None:
        """In the loop: some came, some went."""
        places = {place_of(endpoint): endpoint.name for endpoint in found.endpoints}
        with self._changed:
            for place in [place for place in self._members if place not in places]:
                member, _ = self._members.pop(place)
                member.end(f"{place.life} has ended")
            for place, name in places.items():
                if place not in self._members:
                    self._members[place] = self._join(place, name)
            self._order = [client for _, client in self._members.values()]
            self._ended = found.ended_reason if found.ended else ""
            self._changed.notify_all()

    def _join(self, place: Place, name: str) -> tuple[GroupMember, ActorClient]:
        member = GroupMember(place, f"{name} ({place.life})")
        user = user_of(name)
        client = ActorClient.to(member, lambda: actor_key(self._cluster, user), timeout=self._timeout)
        return member, client

    def _failed(self, error: MarinError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()
