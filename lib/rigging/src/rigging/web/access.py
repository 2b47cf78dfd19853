"""Middleware that lets in who is signed in, and the pages of signing in and out."""

from __future__ import annotations

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rigging.web.context import render, session_of, web_of
from rigging.web.cookies import only_cookie
from rigging.web.login import Viewer
from rigging.web.writes import read_form, write_route

_PUBLIC = ("/login", "/favicon.ico")
_PUBLIC_BELOW = ("/static/",)


class SignedIn:
    """ASGI middleware: finds the session of a request; without one only public paths are served.

    Args:
        app: What it protects.
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
        session = web.sessions.read(only_cookie(connection.headers.raw, web.settings.cookie))
        scope["rigging.session"] = session
        path = scope["path"]
        is_public = path in _PUBLIC or path in web.public_paths or path.startswith(_PUBLIC_BELOW)
        if session is not None or is_public or not web.settings.login:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "not signed in"})
        else:
            request = Request(scope, receive)
            await render(request, "web/login.html", 401, problem=None)(scope, receive, send)


def login_routes() -> list[BaseRoute]:
    """Return the pages of signing in and out."""
    return [
        Route("/session", _session),
        Route("/login", _login, methods=["GET"]),
        Route("/login", _login_by_form, methods=["POST"]),
        write_route("/logout", _logout, needs_writable=False),
    ]


async def _session(request: Request) -> Response:
    """Tell a page that it is still signed in: others do not come so far."""
    del request
    return Response(status_code=204)


async def _login(request: Request) -> Response:
    if request.method == "HEAD" or "token" not in request.query_params:  # a HEAD must not use up a link
        return render(request, "web/login.html", problem=None)
    return _opened(request, request.query_params["token"])


async def _login_by_form(request: Request) -> Response:
    token = (await read_form(request)).get("token", "").strip()
    return _opened(request, token.rpartition("token=")[2])


def _opened(request: Request, token: str) -> Response:
    web = web_of(request)
    viewer: Viewer | None = web.links.redeem(token)
    if viewer is None:
        return render(
            request, "web/login.html", 403, problem="This link was used already, is too old, or was never good."
        )
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
    response = RedirectResponse("/login", 303)
    response.delete_cookie(web.settings.cookie, httponly=True, samesite="strict")
    return response
