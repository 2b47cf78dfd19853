"""Endpoints: register the addresses of live attempts under names, and find them."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from iris.client.connection.connection import Connection, ReplyStream, Stubs
from iris.client.job_env import JobEnv
from iris.rpc.generated import endpoints_pb2 as pb


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one attempt under a name, valid until the attempt ends.

    Args:
        name: The full name, "/user/job/leaf".
        attempt_id: The attempt.
        address: "host:port", or any other text.
        metadata: The metadata given at registration.
    """

    name: str
    attempt_id: str
    address: str
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class EndpointSet:
    """The current endpoints of a name or prefix.

    Args:
        endpoints: The endpoints in order of registration.
        ended: Whether the job of the namespace has ended or does not exist, so that no more endpoints can appear.
        ended_reason: The reason for `ended`, as a message.
    """

    endpoints: tuple[Endpoint, ...]
    ended: bool = False
    ended_reason: str = ""


class EndpointRegistry:
    """Register endpoints of one attempt. They survive a restart of the controller and end with the attempt."""

    def __init__(self, connection: Connection, job: JobEnv) -> None:
        self._connection = connection
        self._attempt_id = job.attempt_id

    def register(
        self, name: str, address: str, metadata: Mapping[str, str] | None = None, *, retry: bool = True
    ) -> Endpoint:
        """Bind `name` to `address` while this attempt lives, replacing its earlier binding.

        Args:
            name: "server" is in this job's namespace. "/user/job/server" names this job or an ancestor explicitly.
            address: The address of this process, "host:port".
            metadata: Further data for callers, at most 8 KiB.
            retry: If False, raise Unavailable instead of waiting for an unreachable controller.

        Raises:
            InvalidRequest: The name or address is invalid.
            Denied: The name is outside of this job and its ancestors.
            Conflict: This attempt has ended.
        """
        request = pb.RegisterEndpointRequest(
            name=name, attempt_id=self._attempt_id, address=address, metadata=dict(metadata or {})
        )
        reply = self._connection.ask(lambda c: c.endpoints.Register, request, retry=retry)
        return endpoint_of(reply.endpoint)

    def unregister(self, name: str, *, retry: bool = True) -> None:
        """Unbind `name`. Does nothing if this attempt has not registered it.

        Args:
            name: The name given at registration.
            retry: If False, raise Unavailable instead of waiting for an unreachable controller.
        """
        request = pb.UnregisterEndpointRequest(name=name, attempt_id=self._attempt_id)
        self._connection.ask(lambda c: c.endpoints.Unregister, request, retry=retry)


class EndpointResolver:
    """Find endpoints of the user's own jobs.

    Args:
        namespace: The job in which names without "/" are looked up, before its ancestors.
    """

    def __init__(self, connection: Connection, namespace: str = "") -> None:
        self._connection = connection
        self._namespace = namespace

    def resolve(self, name: str) -> list[Endpoint]:
        """Return all current endpoints of a name in order of registration; empty if there are none.

        Args:
            name: A leaf, or "/user/job/leaf" from anywhere.
        """
        request = pb.ResolveEndpointRequest(name=name, namespace=self._namespace)
        reply = self._connection.ask(lambda c: c.endpoints.Resolve, request)
        return [endpoint_of(message) for message in reply.endpoints]

    def list(self, prefix: str) -> "list[Endpoint]":
        """Return all endpoints whose full names begin with `prefix`, e.g. "/user/job/"."""
        reply = self._connection.ask(lambda c: c.endpoints.List, pb.ListEndpointsRequest(prefix=prefix))
        return [endpoint_of(message) for message in reply.endpoints]

    def watch(self, name: str = "", *, prefix: str = "") -> Iterator[EndpointSet]:
        """Yield the endpoints of a name (or below a prefix) now, and again after every change.

        The watch survives restarts of the controller and never ends: leave the loop, or close the iterator.
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
        """Return the request of a watch, for callers with their own channel."""
        return pb.WatchEndpointsRequest(name=name, prefix=prefix, namespace=self._namespace if name else "")


class WatchState:
    """Apply the updates of a watch. A stream that replaces a broken one begins with the full set."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Endpoint] = {}
        self._last: EndpointSet | None = None

    def restart(self) -> None:
        """Expect the full set in the next update."""
        self._found = {}

    def take(self, update: pb.EndpointsUpdate) -> EndpointSet | None:
        """Return the endpoints after this update; None if nothing has changed."""
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
    """Return an endpoint as a plain value."""
    return Endpoint(message.name, message.attempt_id, message.address, dict(message.metadata))


def _all(messages: Iterable[pb.Endpoint]) -> Sequence[Endpoint]:
    return [endpoint_of(message) for message in messages]
