"""EndpointService: addresses of live attempts, and the key for authentication among one user's actors and callers."""

# ruff: noqa: ARG002

import hashlib
import hmac
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from iris.controller.access.interceptor import current_principal
from iris.controller.clients.endpoint_watchers import EndpointQuery, EndpointsUpdate
from iris.controller.context import Controller
from iris.domain.endpoints import RegisteredEndpoint, endpoint_id
from iris.domain.events import EndpointRegistered, EndpointRemoved
from iris.domain.ids import AttemptId, JobId, TaskId, parse_attempt_id, parse_task_id, validate_name
from iris.rpc.generated import endpoints_pb2 as pb
from iris.rpc.generated import endpoints_pb2_grpc
from rigging.errors import InvalidRequest

Context = Any  # grpc's own, which is untyped here


class EndpointService(endpoints_pb2_grpc.EndpointServiceServicer):
    """Serves tasks and users."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def Register(self, request: pb.RegisterEndpointRequest, context: Context) -> pb.RegisterEndpointResponse:
        attempt = AttemptId(request.attempt_id)
        endpoint = RegisteredEndpoint(
            name=_own_name(attempt, request.name),
            attempt_id=attempt,
            address=request.address,
            metadata=dict(request.metadata),
            registered_at_ms=self._controller.clock_ms(),
        )
        await self._controller.engine.submit(EndpointRegistered(endpoint))
        return pb.RegisterEndpointResponse(endpoint=_to_wire(endpoint))

    async def Unregister(
        self, request: pb.UnregisterEndpointRequest, context: Context
    ) -> pb.UnregisterEndpointResponse:
        attempt = AttemptId(request.attempt_id)
        await self._controller.engine.submit(EndpointRemoved(endpoint_id(_own_name(attempt, request.name), attempt)))
        return pb.UnregisterEndpointResponse()

    async def Resolve(self, request: pb.ResolveEndpointRequest, context: Context) -> pb.ResolveEndpointResponse:
        query = _query(request.namespace, request.name, "")
        await self._controller.engine.settled()
        found = query.find(self._controller.view)
        return pb.ResolveEndpointResponse(endpoints=[_to_wire(endpoint) for endpoint in found])

    async def List(self, request: pb.ListEndpointsRequest, context: Context) -> pb.ListEndpointsResponse:
        query = _query("", "", request.prefix)
        await self._controller.engine.settled()
        found = query.find(self._controller.view)
        return pb.ListEndpointsResponse(endpoints=[_to_wire(endpoint) for endpoint in found])

    async def Watch(
        self, request: pb.WatchEndpointsRequest, context: Context
    ) -> AsyncGenerator[pb.EndpointsUpdate, None]:
        query = _query(request.namespace, request.name, request.prefix, request.task_id)
        async with aclosing(self._controller.endpoints.watch(query, self._controller.engine.settled)) as updates:
            async for update in updates:
                yield _update_to_wire(update)

    async def ActorKey(self, request: pb.ActorKeyRequest, context: Context) -> pb.ActorKeyResponse:
        user = validate_name(request.user or current_principal().user)
        return pb.ActorKeyResponse(key=actor_key(self._controller.secret, user))


def actor_key(secret: bytes, user: str) -> bytes:
    """Derive the key of one user's processes from the cluster's secret."""
    return hmac.digest(secret, f"actor-key:{user}".encode(), hashlib.sha256)


def _own_name(attempt: AttemptId, name: str) -> str:
    if name.startswith("/"):
        return name
    task, _ = parse_attempt_id(attempt)
    return f"{parse_task_id(task)[0]}/{name}"


def _query(namespace: str, name: str, prefix: str, task_id: str = "") -> EndpointQuery:
    if bool(name) == bool(prefix):
        raise InvalidRequest("select endpoints by name or by prefix, not both")
    if prefix:
        return EndpointQuery.below(prefix)
    return EndpointQuery.named(
        JobId(namespace or current_principal().job_id or ""), name, TaskId(task_id) if task_id else None
    )


def _to_wire(endpoint: RegisteredEndpoint) -> pb.Endpoint:
    return pb.Endpoint(
        name=endpoint.name,
        attempt_id=endpoint.attempt_id,
        address=endpoint.address,
        metadata=endpoint.metadata,
        registered_at_ms=endpoint.registered_at_ms,
    )


def _update_to_wire(update: EndpointsUpdate) -> pb.EndpointsUpdate:
    return pb.EndpointsUpdate(
        added=[_to_wire(endpoint) for endpoint in update.added],
        removed=[_to_wire(endpoint) for endpoint in update.removed],
        ended=update.ended,
        ended_reason=update.ended_reason,
    )
