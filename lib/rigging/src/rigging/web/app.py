"""One application of several page sets, with security, login, error pages and static files."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import URLPath
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rigging.errors import Denied, MarinError
from rigging.web.access import SignedIn, login_routes
from rigging.web.context import Web, WebSettings, render, viewer_of
from rigging.web.errors import status_of
from rigging.web.login import LoginLinks, Sessions, Viewer
from rigging.web.pages import PageSet, check_names, everybody
from rigging.web.revocation import RevokedGrants
from rigging.web.security import StrictPages
from rigging.web.templating import StaticFiles, load_templates, make_environment, static_packages

_log = logging.getLogger(__name__)
#: A disk's words for a name at which nothing can be.
_NO_NAME = frozenset({errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})


def create_app(
    settings: WebSettings,
    sets: Sequence[PageSet],
    *,
    links: LoginLinks[Viewer] | None = None,
    sessions: Sessions | None = None,
    revoked: RevokedGrants | None = None,
) -> Starlette:
    """Return an ASGI application with the pages of all sets. `app.state.web` has its shared parts.

    Args:
        settings: The application's settings.
        sets: The page sets. If paths are equal, the first set wins.
        links: Tokens that open sessions; None for a new store.
        sessions: The sessions; None for new ones, which end with the process.
        revoked: The revoked grants; None if grants cannot be revoked.

    Raises:
        InvalidRequest: Two sets have the same name.
    """
    check_names(sets)
    static = StaticFiles(static_packages(sets))
    web = Web(
        settings=settings,
        links=LoginLinks() if links is None else links,
        sessions=Sessions() if sessions is None else sessions,
        templates=make_environment(sets, static),
        nav=tuple(replace(item, viewers=pages.viewers) for pages in sets for item in pages.nav),
        public_paths=frozenset(path for pages in sets for path in pages.public_paths),
        revoked=RevokedGrants() if revoked is None else revoked,
    )
    routes: list[BaseRoute] = [*login_routes(), *web.channels.routes(), *_static_routes(static)]
    if settings.home is not None:
        routes.append(Route("/", _redirect(settings.home)))
    for pages in sets:
        reserved = pages.viewers is not everybody
        routes += [_Reserved(route, pages.viewers) if reserved else route for route in pages.routes]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        async with AsyncExitStack() as stack:
            for pages in sets:
                await stack.enter_async_context(pages.lifespan())
            # The first request of each page would wait for its templates.
            loading = asyncio.get_running_loop().run_in_executor(None, load_templates, web.templates)
            yield
            await loading

    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(StrictPages, settings.allowed_hosts, any_address=settings.any_address),
            Middleware(_Explained),
            Middleware(SignedIn),
        ],
        exception_handlers={HTTPException: _http_error, MarinError: _marin_error, OSError: _os_error},
        lifespan=lifespan,
    )
    app.state.web = web
    return app


class _Reserved(BaseRoute):
    """A route for some viewers. Others get an error page."""

    def __init__(self, route: BaseRoute, viewers: Callable[[Viewer], bool]) -> None:
        self._route = route
        self._viewers = viewers

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return self._route.matches(scope)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        return self._route.url_path_for(name, **path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._viewers(viewer_of(HTTPConnection(scope))):
            raise Denied("these pages are for admins only")
        await self._route.handle(scope, receive, send)


def _redirect(path: str) -> Callable[[Request], Awaitable[Response]]:
    async def redirect(request: Request) -> Response:
        del request
        return RedirectResponse(path, 307)

    return redirect


def _static_routes(static: StaticFiles) -> list[BaseRoute]:
    async def serve(request: Request) -> Response:
        content, kind = static.read(request.path_params["name"])
        keep = "public, max-age=31536000, immutable" if "v" in request.query_params else "no-cache"
        return Response(content, media_type=kind, headers={"cache-control": keep})

    async def icon(request: Request) -> Response:
        del request
        content, kind = static.read("web/icon.svg")
        return Response(content, media_type=kind, headers={"cache-control": "public, max-age=86400"})

    return [Route("/static/{name:path}", serve), Route("/favicon.ico", icon)]


def _page(request: Request, status: int, words: str) -> Response:
    title = HTTPStatus(status).phrase
    return render(request, "web/error.html", status, code=status, title=title, words=words)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = "This page does not exist." if error.status_code == 404 else str(error.detail)
    response = _page(request, error.status_code, words)
    response.headers.update(error.headers or {})
    return response


async def _marin_error(request: Request, error: Exception) -> Response:
    status = status_of(error)
    return await _unexpected(request, error) if status is None else _page(request, status, str(error))


async def _os_error(request: Request, error: Exception) -> Response:
    """Answer a page whose file is gone or unreadable, or whose storage failed. The log has the path; the answer does
    not.
    """
    assert isinstance(error, OSError)
    if isinstance(error, FileNotFoundError) or error.errno in _NO_NAME:
        return _page(request, 404, "The file no longer exists.")
    if isinstance(error, PermissionError):
        return _page(request, 403, "This server may not read the file.")
    _log.warning("storage cannot be read at %s", request.url.path, exc_info=error)
    words = error.strerror or type(error).__name__
    return _page(request, 503, f"Storage cannot be read now ({words}). Try again; the server's log has details.")


class _Explained:
    """ASGI middleware that turns unexpected errors into an error page, inside the middleware that adds headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def watch(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            if scope["type"] != "http" or has_begun:
                raise
            await (await _unexpected(Request(scope, receive), error))(scope, receive, send)


async def _unexpected(request: Request, error: Exception) -> Response:
    mark = secrets.token_hex(4)
    _log.error("error %s at %s", mark, request.url.path, exc_info=error)
    return _page(request, 500, f"The server failed. Its log has details at the mark {mark}.")
