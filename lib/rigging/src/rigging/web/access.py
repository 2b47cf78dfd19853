"""Middleware that admits signed-in viewers, and the pages for signing in and out."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rigging.web.context import render, session_of, web_of
from rigging.web.cookies import cleared_cookies, cookies_named
from rigging.web.login import Session, Viewer
from rigging.web.revocation import GrantRevokedError, RevokedGrants
from rigging.web.writes import read_form, write_route

_PUBLIC = ("/login", "/favicon.ico")
_PUBLIC_BELOW = ("/static/",)


class SignedIn:
    """ASGI middleware that finds the session of a request. Without one, only public paths are served.

    Args:
        app: The protected application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        web = web_of(connection)
        send = _clearing(cleared_cookies(connection.headers.raw, scope["path"], {web.settings.cookie}), send)
        session = web.sessions.of_cookies(cookies_named(connection.headers.raw, web.settings.cookie))
        problem = None
        if session is not None and session.viewer.grant in web.revoked:
            problem = revoked_words(session)
            session = None
        scope["rigging.session"] = session
        path = scope["path"]
        is_public = path in _PUBLIC or path in web.public_paths or path.startswith(_PUBLIC_BELOW)
        if session is not None:
            await serve_while_good(self._app, web.revoked, session, scope, receive, send)
        elif is_public or not web.settings.login:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "not signed in"})
        else:
            request = Request(scope, receive)
            if problem is None and _follows_a_link(request):
                await render(request, "web/from_elsewhere.html", 401, address=_address(request))(scope, receive, send)
                return
            await render(request, "web/login.html", 401, problem=problem)(scope, receive, send)


def _clearing(cookies: list[str], send: Send) -> Send:
    """Return `send` with `Set-Cookie` headers."""

    async def added(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for cookie in cookies:
                headers.append("set-cookie", cookie)
        await send(message)

    return added if cookies else send


def revoked_words(session: Session) -> str:
    """Return the message to a viewer whose access was revoked."""
    return f"Your login's token {session.viewer.grant}, was revoked."


async def serve_while_good(
    app: ASGIApp, revoked: RevokedGrants, session: Session, scope: Scope, receive: Receive, send: Send
) -> None:
    """Serve one connection. End it if its viewer's access is revoked.

    Args:
        app: The application.
        revoked: The revoked grants.
        session: The viewer's session.
        scope: The connection's ASGI scope.
        receive: ASGI's `receive`.
        send: ASGI's `send`.
    """
    last: dict[str, Any] = {}

    async def watch(message: Message) -> None:
        last.update(message)
        await send(message)

    try:
        async with revoked.while_good(session.viewer.grant):
            await app(scope, receive, watch)
    except GrantRevokedError:
        kind = last.get("type", "")
        if scope["type"] == "websocket":
            if kind != "websocket.close":
                await send({"type": "websocket.close", "code": 1008, "reason": "signed out"})
        elif not kind:
            await PlainTextResponse(revoked_words(session) + "\n", 401)(scope, receive, send)
        elif kind == "http.response.start" or last.get("more_body"):
            # A stream has come to its end; of what has a length the server tells that it is cut.
            await send({"type": "http.response.body", "body": b""})


def _follows_a_link(request: Request) -> bool:
    """Return whether the viewer followed a link from another site, where browsers withhold strict cookies."""
    told = request.headers
    return (
        request.method == "GET"
        and told.get("sec-fetch-site") in ("cross-site", "same-site")
        and told.get("sec-fetch-mode") == "navigate"
        and told.get("sec-fetch-dest") == "document"
    )


def _address(request: Request) -> str:
    """Return the path and query of a request."""
    path = "/" + quote(request.url.path.lstrip("/"), safe="/")  # "//host" would be another server
    return f"{path}?{request.url.query}" if request.url.query else path


def login_routes() -> list[BaseRoute]:
    """Return the routes for signing in and out."""
    return [
        Route("/session", _session),
        Route("/login", _login, methods=["GET"]),
        Route("/login", _login_by_form, methods=["POST"]),
        write_route("/logout", _logout, needs_writable=False),
    ]


async def _session(request: Request) -> Response:
    """Confirm to a page that its session is valid. Requests without a session do not reach this."""
    del request
    return Response(status_code=204)


async def _login(request: Request) -> Response:
    if request.method == "HEAD" or "token" not in request.query_params:  # a HEAD must not use up a link
        return render(request, "web/login.html", problem=None)
    answer = _opened(request, request.query_params["token"])
    if answer.status_code != 200 and session_of(request) is not None:
        # The link was opened again in the browser that it has signed in.
        return render(request, "web/signed_in.html", home=web_of(request).settings.home or "/")
    return answer


async def _login_by_form(request: Request) -> Response:
    token = (await read_form(request)).get("token", "").strip()
    return _opened(request, token.rpartition("token=")[2])


def _opened(request: Request, token: str) -> Response:
    web = web_of(request)
    viewer: Viewer | None = web.links.redeem(token)
    if viewer is None:
        return render(request, "web/login.html", 403, problem="This link is invalid, expired, or already used.")
    # A page, not a redirect: a strict cookie does not go along with a redirect that began at another site's link.
    response = render(request, "web/signed_in.html", home=web.settings.home or "/")
    response.set_cookie(
        web.settings.cookie,
        web.sessions.open(viewer),
        max_age=int(web.sessions.seconds),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


async def _logout(request: Request, form: dict[str, str]) -> Response:
    del form
    web = web_of(request)
    session = session_of(request)
    if session is not None:
        web.sessions.end(session)
        web.channels.close(session.id)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(web.settings.cookie, httponly=True, samesite="strict")
    return response
