"""Middleware around every page that refuses requests from other sites and sets strict headers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rigging.web.hosts import host_refusal, origin_refusal

#: Nothing comes from elsewhere, no script or style stands in a page itself, no other site shows these pages in a frame.
CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: For files of users that a page shows in a frame: no script, no forms, nothing fetched, an origin of its own.
SANDBOX_POLICY: Final = (
    "sandbox; default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_HEADERS: Final = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class StrictPages:
    """ASGI middleware that refuses requests from other sites, and adds strict headers unless the answer sets them.

    Args:
        app: The protected application.
        allowed_hosts: Host names of the server, besides those of loopback.
        any_address: Whether any numeric address is a valid host.
        headers: Headers to add unless the answer sets them; None for those above.
    """

    def __init__(
        self,
        app: ASGIApp,
        allowed_hosts: Collection[str] = (),
        *,
        any_address: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed_hosts)
        self._any_address = any_address
        self._headers = _HEADERS if headers is None else headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_websocket = scope["type"] == "websocket"
        refusal = host_refusal(headers.get("host", ""), self._allowed, any_address=self._any_address)
        refusal = refusal or origin_refusal(scope.get("method", "GET"), headers, websocket=is_websocket)
        if refusal is not None:
            if is_websocket:
                await send({"type": "websocket.close", "code": 1008, "reason": refusal[:120]})
                return
            await PlainTextResponse(f"refused: {refusal}\n", 403, _HEADERS)(scope, receive, send)
            return

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    present.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_strictly)
