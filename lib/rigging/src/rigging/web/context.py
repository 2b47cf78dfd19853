"""The shared parts of an application's pages: settings, sessions, templates. `web_of(request)` returns them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import jinja2
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse

from rigging.web.live.channels import Channels
from rigging.web.login import LoginLinks, Session, Sessions, Viewer
from rigging.web.pages import NavItem
from rigging.web.revocation import RevokedGrants

#: The session's cookie of an application that says nothing else; other names begin with it and "-", so that servers of
#: users at this host, to which browsers send all of them, are not shown any.
USUAL_COOKIE: Final = "marin-session"


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The settings of an application.

    Attributes:
        title: The program's name, at the top of each page.
        allowed_hosts: Host names of the server, besides those of loopback.
        any_address: Whether any numeric address is a valid host, for servers beyond loopback.
        writable: Whether pages may change anything. The viewer needs write access, too.
        login: If False, everybody who reaches the server sees the pages, as a viewer without write access.
        login_hint: How to get a login link, in words, for people who are not signed in.
        cookie: The name of the session's cookie. Servers on several ports of one machine need different names.
        home: The target of `/`; None if a page set has a page there.
    """

    title: str
    allowed_hosts: frozenset[str] = frozenset()
    any_address: bool = False
    writable: bool = False
    login: bool = True
    login_hint: str = "Open the link that the program printed when it started."
    cookie: str = USUAL_COOKIE
    home: str | None = None


@dataclass(slots=True)
class Web:
    """The shared parts of an application.

    Attributes:
        settings: The application's settings.
        links: Tokens that open sessions.
        sessions: The sessions.
        templates: All templates.
        nav: Links at the top of each page.
        public_paths: Paths that need no login.
        revoked: The revoked grants.
        channels: The streams of events that browsers share among their tabs.
    """

    settings: WebSettings
    links: LoginLinks[Viewer]
    sessions: Sessions
    templates: jinja2.Environment
    nav: tuple[NavItem, ...] = ()
    public_paths: frozenset[str] = field(default_factory=frozenset)
    revoked: RevokedGrants = field(default_factory=RevokedGrants)
    channels: Channels = field(default_factory=Channels)

    def login_path(self, viewer: Viewer) -> str:
        """Return the path of a new single-use login link for a viewer."""
        return f"/login?token={self.links.issue(viewer)}"


_ANYBODY = Viewer("", may_write=False)


def web_of(request: HTTPConnection) -> Web:
    """Return the shared parts of the request's application."""
    web: Web = request.app.state.web
    return web


def session_of(request: HTTPConnection) -> Session | None:
    """Return the session of an admitted request; None where no login is required."""
    session: Session | None = request.scope.get("rigging.session")
    return session


def viewer_of(request: HTTPConnection) -> Viewer:
    """Return the viewer of a request."""
    session = session_of(request)
    return _ANYBODY if session is None else session.viewer


def may_write(request: HTTPConnection) -> bool:
    """Return whether this viewer may change something here. Pages show buttons only then."""
    return web_of(request).settings.writable and viewer_of(request).may_write


def is_fragment(request: Request) -> bool:
    """Return whether htmx requests a part of a page, not the browser a whole page."""
    return request.headers.get("hx-request") == "true" and request.headers.get("hx-history-restore-request") != "true"


def render(request: Request, template: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    """Return a rendered page.

    Args:
        request: The request to answer.
        template: The template's name, `SET/FILE`.
        status: The HTTP status.
        values: Values for the template. All are escaped.
    """
    web = web_of(request)
    session = session_of(request)
    text = web.templates.get_template(template).render(
        values,
        request=request,
        settings=web.settings,
        nav=[item for item in web.nav if item.viewers(viewer_of(request))],
        viewer=viewer_of(request),
        may_write=may_write(request),
        form_token="" if session is None else web.sessions.form_token(session),
    )
    # Text of others may have halves of characters, which have no form in UTF-8.
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status, {"vary": "HX-Request"})
