"""Forward one request or WebSocket to a server, and stream its answer back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx2
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from rigging.errors import MarinError
from rigging.web.proxy.headers import Upstream, request_headers, response_headers

_log = logging.getLogger(__name__)
_NORMAL, _GOING_AWAY, _BROKEN = 1000, 1001, 1011
_NEVER_SENT: Final = frozenset({1005, 1006, 1015})
"""Close codes that describe how a connection ended. They are never sent."""


class ServerGone(MarinError):
    """The server did not answer."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts for a server, in seconds.

    Attributes:
        connect: Timeout of a connection.
        answer: Timeout of each piece of an answer, and of sending a piece of a request.
    """

    connect: float = 5.0
    answer: float = 600.0


class Forwarder:
    """Forward requests. It keeps connections open while `opened` is active. It belongs to one event loop.

    Args:
        own_cookies: Kinds of cookies that servers neither receive nor set (`rigging.web.cookies.is_session_cookie`).
        patience: The timeouts.
        most_message_bytes: Maximum size of a WebSocket message. A longer one closes the WebSocket.
    """

    def __init__(
        self, own_cookies: Collection[str], patience: Patience = Patience(), most_message_bytes: int = 16 << 20
    ) -> None:
        self._own_cookies = frozenset(own_cookies)
        self._patience = patience
        self._most_message_bytes = most_message_bytes
        self._transport: httpx2.AsyncHTTPTransport | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Context manager: keep connections to servers open."""
        # A transport and no client: a client keeps cookies, follows redirects, and unpacks what was packed. Servers
        # close idle connections after some seconds; those that are kept for less are not found closed.
        limits = httpx2.Limits(max_connections=500, max_keepalive_connections=50, keepalive_expiry=2.0)
        async with httpx2.AsyncHTTPTransport(verify=False, trust_env=False, limits=limits) as self._transport:
            yield

    async def http(self, request: Request, upstream: Upstream, target: bytes) -> Response:
        """Return a server's answer to a request. The body streams as the server sends it.

        Args:
            request: The request.
            upstream: The server.
            target: The path and query to request.

        Raises:
            ServerGone: The server does not answer.
        """
        assert self._transport is not None
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        limits = httpx2.Timeout(self._patience.answer, connect=self._patience.connect)
        asked = httpx2.Request(
            request.method,
            f"http://{upstream.authority}/",
            headers=self._headers(request, upstream),
            content=request.stream() if has_body else None,
            # The path exactly as it came.
            extensions={"timeout": limits.as_dict(), "target": target},
        )
        try:
            answer = await self._transport.handle_async_request(asked)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ServerGone(f"does not answer: {str(error) or type(error).__name__}") from error
        headers = response_headers(answer.headers.raw, upstream, self._own_cookies, request.headers["host"])
        found = _Streamed(_body(answer), answer.status_code)
        found.raw_headers = headers
        return found

    async def websocket(self, socket: WebSocket, upstream: Upstream, target: bytes, seconds: float) -> None:
        """Forward a WebSocket's messages in both directions until one side closes it or the time limit expires.

        Args:
            socket: The WebSocket, not yet accepted.
            upstream: The server.
            target: The path and query to request.
            seconds: Maximum duration.

        Raises:
            ServerGone: The server does not answer, or refuses. The WebSocket is not accepted then.
        """
        host = socket.headers["host"]
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self._headers(socket, upstream)
            if name not in (b"host", b"user-agent")
        ]
        try:
            server = await _Direct(
                f"ws://{host}{target.decode('latin-1')}",
                host=upstream.host,
                port=upstream.port,
                additional_headers=headers,
                user_agent_header=socket.headers.get("user-agent"),
                subprotocols=[Subprotocol(name) for name in socket.scope.get("subprotocols", [])] or None,
                open_timeout=self._patience.connect,
                close_timeout=2.0,
                max_size=self._most_message_bytes,
                compression=None,
                proxy=None,
            )
        except InvalidStatus as error:
            raise ServerGone(f"refuses the WebSocket with status {error.response.status_code}") from error
        except (OSError, TimeoutError, WebSocketException, ValueError) as error:
            raise ServerGone(f"does not accept the WebSocket: {str(error) or type(error).__name__}") from error
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(server.close)
            await socket.accept(server.subprotocol)
            await _exchange(socket, server, seconds)

    def _headers(self, connection: HTTPConnection, upstream: Upstream) -> list[tuple[bytes, bytes]]:
        client = connection.client.host if connection.client is not None else ""
        scheme = {"ws": "http", "wss": "https"}.get(connection.url.scheme, connection.url.scheme)
        return request_headers(connection.headers.raw, upstream, self._own_cookies, scheme, client)


class _Direct(connect):
    """A connection that ignores redirects: the server may not send this process elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class _Streamed(StreamingResponse):
    """A server's answer. If it breaks off, the connection to the browser breaks off, too."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except httpx2.HTTPError as error:
            _log.info("an answer of a task's server broke off: %s", error or type(error).__name__)


async def _body(answer: httpx2.Response) -> AsyncIterator[bytes]:
    assert isinstance(answer.stream, httpx2.AsyncByteStream)
    try:
        async for piece in answer.stream:
            yield piece
    finally:
        await answer.stream.aclose()


async def _exchange(socket: WebSocket, server: ClientConnection, seconds: float) -> None:
    """Forward messages until one side closes, then close the other with the same code and reason."""
    pumps = [asyncio.create_task(_to_server(socket, server)), asyncio.create_task(_to_browser(socket, server))]
    try:
        done, _ = await asyncio.wait(pumps, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        ends = await asyncio.gather(*pumps, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            _log.warning("a WebSocket of a task's server ended", exc_info=end)
    if pumps[1] in done or not done:
        code, words = server.close_code, server.close_reason or ""
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # it is closed already
            await socket.close(_sendable(code) if done else _GOING_AWAY, words if done else "the session is over")


async def _to_server(socket: WebSocket, server: ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                await server.close(_sendable(message.get("code")), message.get("reason") or "")
                return
            text = message.get("text")
            await server.send(text if text is not None else message["bytes"])


async def _to_browser(socket: WebSocket, server: ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed, WebSocketDisconnect):
        async for message in server:
            if isinstance(message, str):
                await socket.send_text(message)
            else:
                await socket.send_bytes(message)


def _sendable(code: int | None) -> int:
    if code is None or code == 1005:
        return _NORMAL
    return _BROKEN if code in _NEVER_SENT else code
