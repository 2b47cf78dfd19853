"""An application on a separate port that forwards the requests of viewers who are signed in at the pages beside it.

Pages of users' servers must not share an origin with pages that act for the viewer. So this application has no forms
and no tokens: it returns the servers' answers, or an error text.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from rigging.errors import MarinError, NotFound
from rigging.web.access import serve_while_good
from rigging.web.context import Web
from rigging.web.cookies import cookies_named
from rigging.web.errors import status_of
from rigging.web.login import Session, Viewer
from rigging.web.proxy.forward import Forwarder, ServerGone
from rigging.web.proxy.headers import Upstream, segments_of
from rigging.web.proxy.own_hosts import ENTRY, OwnHosts
from rigging.web.security import StrictPages

_log = logging.getLogger(__name__)
_TRY_AGAIN_SECONDS: Final = 3
_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
#: For answers that have none of their own: nothing is told to other sites or usable by them.
_HEADERS: Final = {
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

Finder = Callable[[Viewer, list[str]], Awaitable[Upstream]]
"""Returns the server for a path and a viewer; raises MarinError if there is none."""


def create_proxy(
    web: Web,
    find: Finder,
    forwarder: Forwarder,
    home: Callable[[HTTPConnection], str],
    own_hosts: OwnHosts | None = None,
) -> Starlette:
    """Return the application.

    Args:
        web: The pages beside it, whose sessions it accepts.
        find: Finds servers.
        forwarder: Sends requests to them.
        home: Returns the address of the pages beside it, for a browser's request.
        own_hosts: The host names of servers; None if all have that of the request.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        async with forwarder.opened():
            yield

    settings = web.settings
    names = settings.allowed_hosts if own_hosts is None else settings.allowed_hosts | {f"*.{own_hosts.domain}"}
    return Starlette(
        routes=[Mount("", app=_Proxy(web, find, forwarder, home, own_hosts))],
        middleware=[Middleware(StrictPages, names, any_address=settings.any_address, headers=_HEADERS)],
        lifespan=lifespan,
    )


@dataclass(slots=True)
class _Proxy:
    web: Web
    find: Finder
    forwarder: Forwarder
    home: Callable[[HTTPConnection], str]
    own_hosts: OwnHosts | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        place = "" if self.own_hosts is None else self.own_hosts.host_in(connection)
        session = self.web.sessions.of_cookies(cookies_named(connection.headers.raw, self.web.settings.cookie), place)
        if session is None or session.viewer.grant in self.web.revoked:
            await self._serve(None, scope, receive, send)
            return

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await self._serve(session, scope, receive, send)

        await serve_while_good(serve, self.web.revoked, session, scope, receive, send)

    async def _serve(self, session: Session | None, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        problem: Response
        try:
            if self.own_hosts is not None and not self.own_hosts.host_in(connection):
                # Here all servers' pages would share an origin.
                problem = RedirectResponse(self.home(connection) + _place_in(connection), 307)
            elif self.own_hosts is not None and scope["type"] == "http" and scope["path"] == ENTRY:
                problem = self.own_hosts.enter(Request(scope, receive), self.web)
            elif session is None:
                problem = self._page(
                    connection, 401, "You are not signed in. Sign in at the dashboard, then come back."
                )
            elif scope["type"] == "websocket":
                await self._websocket(WebSocket(scope, receive, send), session)
                return
            else:
                problem = await self._answer(Request(scope, receive), session)
        except ServerGone as error:
            problem = self._page(connection, 502, f"The server of the task {error}", try_again=True)
        except MarinError as error:
            problem = self._page(connection, status_of(error) or 500, str(error))
            if status_of(error) is None:
                _log.error("cannot forward %s", connection.url.path, exc_info=error)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(problem)
        else:
            await problem(scope, receive, send)

    async def _answer(self, request: Request, session: Session) -> Response:
        upstream, target = await self._target(request, session)
        if target is None:
            # Relative links of the server's first page are below it.
            query = request.scope["query_string"].decode("latin-1")
            return RedirectResponse(f"{upstream.prefix}/" + (f"?{query}" if query else ""), 307)
        return await self.forwarder.http(request, upstream, target)

    async def _websocket(self, socket: WebSocket, session: Session) -> None:
        upstream, target = await self._target(socket, session)
        await self.forwarder.websocket(socket, upstream, target or b"/", max(0.0, session.until - time.time()))

    async def _target(self, connection: HTTPConnection, session: Session) -> tuple[Upstream, bytes | None]:
        raw_path: bytes = connection.scope["raw_path"]
        upstream = await self.find(session.viewer, segments_of(raw_path))
        if self.own_hosts is not None and self.own_hosts.host_of(upstream.prefix) != self.own_hosts.host_in(connection):
            raise NotFound(f"this host name is not that of {upstream.prefix!r}: open the page from the dashboard")
        target = upstream.target(raw_path)
        query: bytes = connection.scope["query_string"]
        return upstream, target + b"?" + query if target is not None and query else target

    def _page(self, connection: HTTPConnection, status: int, words: str, *, try_again: bool = False) -> Response:
        text = self.web.templates.get_template("web/plain.html").render(
            title=f"{status} {HTTPStatus(status).phrase}",
            words=words,
            home=self.home(connection) + ("" if self.own_hosts is None else _place_in(connection)),
            try_again=_TRY_AGAIN_SECONDS if try_again else 0,
        )
        return HTMLResponse(text, status, {"content-security-policy": _POLICY, "cache-control": "no-store"})


def _place_in(connection: HTTPConnection) -> str:
    """Return the path and query of a request, for the pages beside this application."""
    path = "/" + connection.scope["raw_path"].decode("latin-1").lstrip("/")  # "//host" would be another server
    query = connection.scope["query_string"].decode("latin-1")
    if path == ENTRY:
        return "/"
    return f"{path}?{query}" if query else path
