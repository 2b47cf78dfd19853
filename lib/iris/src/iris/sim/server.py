"""The controller's gRPC server without gRPC: the real services with the real interceptor."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from iris.rpc.protocol import call_metadata
from iris.rpc.status_map import error_of_status
from iris.sim.world import Node
from rigging.errors import MarinError

Handler = Any  # grpc's own, which is untyped here


@dataclass(frozen=True, slots=True)
class _Details:
    method: str
    invocation_metadata: tuple[tuple[str, str], ...]


class _Aborted(Exception):
    """Raised by `context.abort`, like grpc's exception."""

    def __init__(self, error: MarinError) -> None:
        super().__init__(str(error))
        self.error = error


class _Context:
    """The part of grpc's context that the interceptor and the services use."""

    def __init__(self, metadata: tuple[tuple[str, str], ...], respond: Callable[[Any], Awaitable[None]]) -> None:
        self._metadata = metadata
        self.write = respond

    def peer(self) -> str:
        return "unix:"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise _Aborted(error_of_status(code, details))


class Server:
    """Runs calls and streams in tasks of the controller's process.

    Args:
        interceptor: As passed to grpc.aio; services register with this object.
        inspect: Called with every outgoing answer and message.
    """

    def __init__(self, node: Node, interceptor: Any, inspect: Callable[[Any], None]) -> None:
        self.node = node
        self._interceptor = interceptor
        self._inspect = inspect
        self._handlers: dict[str, Handler] = {}

    # What the generated code calls.

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        del handlers

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Handler]) -> None:
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = handler

    # What the network calls.

    def start_call(
        self,
        method: str,
        request: Any,
        metadata: tuple[tuple[str, str], ...],
        send_back: Callable[[Any, MarinError | None], None],
    ) -> "asyncio.Task[None]":
        """Run a unary call. `send_back` gets the answer or the error, or nothing if the call is cancelled."""
        return self._start(partial(self._serve_call, method, request, metadata, send_back))

    def start_stream(
        self,
        token: str,
        requests: AsyncIterator[Any],
        respond: Callable[[Any], Awaitable[None]],
        finish: Callable[[MarinError | None], None],
    ) -> "asyncio.Task[None]":
        """Run a worker's session."""
        return self._start(partial(self._serve_stream, token, requests, respond, finish))

    def cancel(self, task: "asyncio.Task[None]") -> None:
        """Cancel the call because the caller is gone."""
        if not self.node.is_dying:
            self.node.run(task.cancel)

    def _start(self, serve: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self.node.run(self.node.create_task, self._guard(serve))
        return task

    async def _guard(self, serve: Callable[[], Awaitable[None]]) -> None:
        try:
            await serve()
        except Exception as error:  # grpc would answer UNKNOWN; here it is a defect of the controller
            self.node.complain(f"a call failed: {error!r}")

    async def _serve_call(
        self,
        method: str,
        request: Any,
        metadata: tuple[tuple[str, str], ...],
        send_back: Callable[[Any, MarinError | None], None],
    ) -> None:
        handler = await self._handler(method, metadata)
        context = _Context(metadata, _nowhere)
        try:
            if handler.request_streaming:
                await handler.stream_stream(None, context)  # it refuses the call, without a look at the request
                return
            answer = await handler.unary_unary(request.SerializeToString(), context)
        except _Aborted as aborted:
            self._send(send_back, None, aborted.error)
        else:
            self._inspect(answer)
            self._send(send_back, answer, None)

    async def _serve_stream(
        self,
        token: str,
        requests: AsyncIterator[Any],
        respond: Callable[[Any], Awaitable[None]],
        finish: Callable[[MarinError | None], None],
    ) -> None:
        method = "/iris.v1.WorkerService/Session"
        handler = await self._handler(method, call_metadata(token))

        async def write(message: Any) -> None:
            if not self.node.is_dying:
                self._inspect(message)
                await respond(message)

        error = None
        try:
            await handler.stream_stream(requests, _Context(call_metadata(token), write))
        except _Aborted as aborted:
            error = aborted.error
        if not self.node.is_dying:
            finish(error)

    def _send(self, send_back: Callable[[Any, MarinError | None], None], answer: Any, error: MarinError | None) -> None:
        if not self.node.is_dying:
            send_back(answer, error)

    async def _handler(self, method: str, metadata: tuple[tuple[str, str], ...]) -> Handler:
        async def find(details: _Details) -> Handler:
            return self._handlers[details.method]

        return await self._interceptor.intercept_service(find, _Details(method, metadata))


async def _nowhere(message: Any) -> None:
    del message
