"""A host name of its own for the pages of each server, so that nobody else has their cookies and storage.

A name is `LABEL.DOMAIN`; its label follows from the server's path. Viewers come from the pages that they are signed in
at, with a ticket that is valid once, and get a cookie that is valid at this name only.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response

from rigging.errors import Denied
from rigging.web.context import Web
from rigging.web.hosts import host_name, is_label
from rigging.web.login import LoginLinks, Session

ENTRY: Final = "/.enter"
_TICKET_SECONDS: Final = 30.0
_READABLE: Final = 30


@dataclass(frozen=True, slots=True)
class _Ticket:
    session: Session
    host: str
    target: str


@dataclass(slots=True)
class OwnHosts:
    """The names below a domain, and the tickets to them.

    Attributes:
        domain: The domain, whose names of one more label lead here: "localhost" in browsers, or a wildcard of the DNS.
    """

    domain: str
    _tickets: LoginLinks[_Ticket] = field(default_factory=lambda: LoginLinks(_TICKET_SECONDS))

    def host_of(self, prefix: str) -> str:
        """Return the name for the server at a path prefix."""
        words = re.sub(r"[^a-z0-9]+", "-", prefix.rpartition("/")[2].lower())[:_READABLE].strip("-")
        digest = hashlib.sha256(prefix.encode("utf-8", "replace")).hexdigest()[:20]
        return f"{words}-{digest}.{self.domain}" if words else f"{digest}.{self.domain}"

    def host_in(self, connection: HTTPConnection) -> str:
        """Return the name of a request's host; "" if it is none below the domain."""
        host = host_name(connection.headers.get("host", ""))
        label, _, domain = host.partition(".")
        return host if domain == self.domain and is_label(label) else ""

    def entrance(self, session: Session, prefix: str, target: str) -> tuple[str, str]:
        """Return the host name and the path by which a viewer enters, once and soon.

        Args:
            session: The viewer's session at the other pages.
            prefix: The server's path prefix.
            target: The path and query to show.
        """
        host = self.host_of(prefix)
        return host, f"{ENTRY}?{urlencode({'ticket': self._tickets.issue(_Ticket(session, host, target))})}"

    def enter(self, request: Request, web: Web) -> Response:
        """Redeem a request's ticket. Raise Denied if it is unknown, used, expired, or of another name."""
        ticket = self._tickets.redeem(request.query_params.get("ticket", ""))
        if ticket is None or ticket.host != self.host_in(request):
            raise Denied("this link was used already, or is too old: open the page from the dashboard")
        response = RedirectResponse(ticket.target, 303)
        # Not strict: the way here began at the other pages, which are another site.
        response.set_cookie(
            web.settings.cookie,
            web.sessions.cookie_at(ticket.host, ticket.session),
            max_age=int(web.sessions.seconds),
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return response
