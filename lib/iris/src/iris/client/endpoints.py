"""Names bound to the addresses of live attempts: registering them, and finding them again."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from iris.client.connection.connection import Connection, ReplyStream, Stubs
from iris.client.job_env import JobEnv
from iris.rpc.generated import endpoints_pb2 as pb


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which one attempt answers under a name; it is gone when the attempt ends.

    Args:
        name: The full name, "/user/job/leaf".
        attempt_id: The attempt.
        address: "host:port", or anything that callers understand.
        metadata: As it was registered.
    """

    name: str
    attempt_id: str
    address: str
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class EndpointSet:
    """The endpoints of a name or prefix at one moment.

    Args:
        endpoints: In the order of their registration.
        ended: The job of that namespace has ended or does not exist, so nothing more will answer.
        ended_reason: Which job that is.
    """

    endpoints: tuple[Endpoint, ...]
    ended: bool = False
    ended_reason: str = ""


class EndpointRegistry:
    """Registers endpoints of one attempt. They survive a restart of the controller and go with the attempt."""

    def __init__(self, connection: Connection, job: JobEnv) -> None:
        self._connection = connection
        self._attempt_id = job.attempt_id

    def register(self, name: str, address: str, metadata: Mapping[str, str] | None = None) -> Endpoint:
        """Bind `name` to `address` as long as this attempt lives; replaces what it had under that name.

        Args:
            name: "server" is put into the namespace of this job; "/user/job/server" names this job or one above it.
            address: Where this process answers, "host:port".
            metadata: Further facts for callers; at most 8 KiB.

        Raises:
            InvalidRequest: A name or address that cannot be.
            Denied: A name outside of this job and those above it.
            Conflict: This attempt is over.
        """
        request = pb.RegisterEndpointRequest(
            name=name, attempt_id=self._attempt_id, address=address, metadata=dict(metadata or {})
        )
        reply = self._connection.ask(lambda c: c.endpoints.Register, request)
        return endpoint_of(reply.endpoint)

    def unregister(self, name: str, *, retry: bool = True) -> None:
        """Unbind `name`; nothing happens when this attempt has not registered it.

        Args:
            name: As it was registered.
            retry: False: do not wait for a controller that is away; raises Unavailable then.
        """
        request = pb.UnregisterEndpointRequest(name=name, attempt_id=self._attempt_id)
        self._connection.ask(lambda c: c.endpoints.Unregister, request, retry=retry)


class EndpointResolver:
    """Finds endpoints of one's own user's jobs.

    Args:
        namespace: The job from which names without "/" are looked up: in it first, then in the jobs above it.
    """

    def __init__(self, connection: Connection, namespace: str = "") -> None:
        self._connection = connection
        self._namespace = namespace

    def resolve(self, name: str) -> list[Endpoint]:
        """All that answer under a name now, in the order of their registration; empty when nothing does.

        Args:
            name: A leaf, or "/user/job/leaf" from anywhere.
        """
        request = pb.ResolveEndpointRequest(name=name, namespace=self._namespace)
        reply = self._connection.ask(lambda c: c.endpoints.Resolve, request)
        return [endpoint_of(message) for message in reply.endpoints]

    def list(self, prefix: str) -> "list[Endpoint]":
        """All whose full names begin with `prefix`, e.g. "/user/job/"."""
        reply = self._connection.ask(lambda c: c.endpoints.List, pb.ListEndpointsRequest(prefix=prefix))
        return [endpoint_of(message) for message in reply.endpoints]

    def watch(self, name: str = "", *, prefix: str = "") -> Iterator[EndpointSet]:
        """Yield the endpoints of a name (or below a prefix) now, and again after every change, as the cluster tells it.

        Goes on through a restart of the controller, for ever: leave the loop, or close the iterator.
        """
        state = WatchState()

        def begin(c: Stubs) -> ReplyStream[pb.EndpointsUpdate]:
            state.restart()
            return c.endpoints.Watch(self.watch_request(name, prefix), metadata=c.metadata)

        while True:
            with contextlib.closing(self._connection.stream(begin)) as updates:
                for update in updates:
                    if (found := state.take(update)) is not None:
                        yield found

    def watch_request(self, name: str = "", prefix: str = "") -> pb.WatchEndpointsRequest:
        """The request of a watch, for those who hold a channel of their own."""
        return pb.WatchEndpointsRequest(name=name, prefix=prefix, namespace=self._namespace if name else "")


class WatchState:
    """Puts the updates of a watch together; a stream that takes the place of a broken one begins with the whole."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Endpoint] = {}
        self._last: EndpointSet | None = None

    def restart(self) -> None:
        """The next update is the whole."""
        self._found = {}

    def take(self, update: pb.EndpointsUpdate) -> EndpointSet | None:
        """Return the endpoints after this update; None when nothing has changed."""
        for endpoint in _all(update.removed):
            self._found.pop((endpoint.name, endpoint.attempt_id), None)
        for endpoint in _all(update.added):
            self._found[endpoint.name, endpoint.attempt_id] = endpoint
        now = EndpointSet(tuple(self._found.values()), update.ended, update.ended_reason)
        if now == self._last:
            return None
        self._last = now
        return now


def endpoint_of(message: pb.Endpoint) -> Endpoint:
    """An endpoint as a plain value."""
    return Endpoint(message.name, message.attempt_id, message.address, dict(message.metadata))


def _all(messages: Iterable[pb.Endpoint]) -> Sequence[Endpoint]:
    return [endpoint_of(message) for message in messages]
