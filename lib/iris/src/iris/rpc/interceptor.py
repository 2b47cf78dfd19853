"""The one server interceptor: who calls, may they, and which status an error of the family becomes."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from iris.rpc.auth import Principal, Unauthenticated, check_method, verify_token
from iris.rpc.protocol import AUTHORIZATION_KEY, PROTOCOL_VERSION, PROTOCOL_VERSION_KEY
from iris.rpc.status_map import to_status
from rigging.errors import Conflict, MarinError

_PRINCIPAL: Final[ContextVar[Principal]] = ContextVar("iris_principal")
_MAX_KNOWN_TOKENS: Final = 4096

# Messages and contexts are grpc's, which are untyped here.
Context = Any
Handler = Any


def current_principal() -> Principal:
    """The verified caller of the RPC being served; only inside a servicer's method."""
    return _PRINCIPAL.get()


class ServerInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc, unused-ignore]
    """Verifies the bearer token of every call, checks the method against the caller's kind, maps errors.

    Args:
        secret: The cluster's secret, which all its tokens are made with.
        on_client_call: Told True when a user's or job's call begins and False when it is over.
    """

    def __init__(self, secret: bytes, on_client_call: Callable[[bool], None]) -> None:
        self._secret = secret
        self._on_client_call = on_client_call
        self._handlers: dict[str, Handler] = {}
        self._known: dict[str, Principal] = {}

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        method: str = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            inner = await continuation(handler_call_details)
            if inner is None:
                return None  # grpc answers UNIMPLEMENTED
            handler = self._handlers[method] = self._wrap(inner, method)
        return handler

    def _wrap(self, inner: Handler, method: str) -> Handler:
        coders = {
            "request_deserializer": inner.request_deserializer,
            "response_serializer": inner.response_serializer,
        }
        if inner.request_streaming and inner.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._streamed(inner.stream_stream, method), **coders)
        if inner.request_streaming:
            return grpc.stream_unary_rpc_method_handler(self._single(inner.stream_unary, method), **coders)
        if inner.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streamed(inner.unary_stream, method), **coders)
        return grpc.unary_unary_rpc_method_handler(self._single(inner.unary_unary, method), **coders)

    def _single(self, behaviour: Callable[..., Awaitable[Any]], method: str) -> Callable[..., Awaitable[Any]]:
        watched = not method.startswith("/iris.v1.WorkerService/")

        async def serve(request: Any, context: Context) -> Any:
            try:
                self._admit(context, method)
                if watched:
                    self._on_client_call(True)
                try:
                    return await behaviour(request, context)
                finally:
                    if watched:
                        self._on_client_call(False)
            except MarinError as error:
                await _abort(context, error)

        return serve

    def _streamed(
        self, behaviour: Callable[..., AsyncGenerator[Any, None]], method: str
    ) -> Callable[..., Awaitable[None]]:
        watched = not method.startswith("/iris.v1.WorkerService/")

        async def serve(request: Any, context: Context) -> None:
            try:
                self._admit(context, method)
                if watched:
                    self._on_client_call(True)
                try:
                    # Closed here and now when the caller goes away, not when the collector finds it.
                    async with aclosing(behaviour(request, context)) as responses:
                        async for response in responses:
                            await context.write(response)
                finally:
                    if watched:
                        self._on_client_call(False)
            except MarinError as error:
                await _abort(context, error)

        return serve

    def _admit(self, context: Context, method: str) -> None:
        metadata = dict(context.invocation_metadata() or ())
        principal = self._principal(metadata.get(AUTHORIZATION_KEY, ""))
        spoken = metadata.get(PROTOCOL_VERSION_KEY, "")
        if spoken and spoken != str(PROTOCOL_VERSION):
            raise Conflict(
                f"the caller speaks protocol version {spoken}, this controller {PROTOCOL_VERSION}: "
                "use the same release of iris on both sides"
            )
        check_method(principal, method)
        _PRINCIPAL.set(principal)

    def _principal(self, authorization: str) -> Principal:
        known = self._known.get(authorization)
        if known is not None:
            return known
        if not authorization:
            raise Unauthenticated("no token: send metadata 'authorization: Bearer <token>'")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("the authorization metadata must read 'Bearer <token>'")
        principal = verify_token(self._secret, token)
        if len(self._known) >= _MAX_KNOWN_TOKENS:
            self._known.clear()
        self._known[authorization] = principal
        return principal


async def _abort(context: Context, error: MarinError) -> NoReturn:
    code, message = to_status(error)
    await context.abort(code, message)
    raise AssertionError("abort returns never")
