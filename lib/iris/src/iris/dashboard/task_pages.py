"""Forwards requests to pages that tasks serve."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from iris.dashboard import queries
from iris.dashboard.cluster_client import ClusterClient, user_of
from iris.dashboard.endpoint_rules import BASE, chosen, names_in, upstream_of
from rigging.errors import Denied, NotFound
from rigging.web.context import USUAL_COOKIE, Web, session_of
from rigging.web.hosts import host_name
from rigging.web.login import Viewer
from rigging.web.proxy.application import create_proxy
from rigging.web.proxy.forward import Forwarder, Patience
from rigging.web.proxy.headers import Upstream, segments_of
from rigging.web.proxy.own_hosts import OwnHosts
from rigging.web.serving import LOOPBACK

#: What the names of the sessions' cookies of all dashboards begin with.
COOKIES: Final = "iris-session"


@dataclass(slots=True)
class TaskPages:
    """Finds the servers of tasks.

    Args:
        client: The controller.
        port: The port of tasks' pages, different from that of the other pages; 0 for none.
        home_port: Port of the other pages.
        own_hosts: The host names of tasks' pages; None for that of the other pages.
        patience: Timeout for tasks' servers.
    """

    client: ClusterClient
    port: int = 0
    home_port: int = 0
    own_hosts: OwnHosts | None = None
    patience: Patience = field(default_factory=Patience)

    def routes(self) -> list[BaseRoute]:
        """Return the routes on the port of the other pages, which redirect to the port of tasks' pages."""
        return [Route(f"{BASE}/{{path:path}}", self.redirect)]

    def application(self, web: Web) -> Starlette:
        """Return the application for the port of tasks' pages.

        Args:
            web: The other pages.
        """
        forwarder = Forwarder({COOKIES, USUAL_COOKIE}, self.patience)
        return create_proxy(web, self.find, forwarder, self._home, self.own_hosts)

    async def redirect(self, request: Request) -> Response:
        """Redirect to the same path at the port of tasks' pages, and at the page's own host name if it has one."""
        if not self.port:
            raise NotFound("this server shows no pages of tasks")
        path = request.scope["raw_path"].decode("latin-1")
        query = request.scope["query_string"].decode("latin-1")
        target = path + (f"?{query}" if query else "")
        if self.own_hosts is None:
            return RedirectResponse(_at_port(request, self.port) + target, 307)
        session = session_of(request)
        if session is None:
            raise Denied("pages of tasks are for viewers who are signed in")
        row = await self._endpoint(session.viewer, segments_of(request.scope["raw_path"]))
        host, way_in = self.own_hosts.entrance(session, f"{BASE}{row['name']}", target)
        return RedirectResponse(f"{request.url.scheme}://{host}:{self.port}{way_in}", 307)

    def _home(self, connection: HTTPConnection) -> str:
        """Return the origin of the other pages. From a task's own host name, it is that of login links."""
        if self.own_hosts is not None and self.own_hosts.host_in(connection):
            return f"http://{LOOPBACK}:{self.home_port}"
        return _at_port(connection, self.home_port)

    async def _endpoint(self, viewer: Viewer, words: list[str]) -> Mapping[str, Any]:
        names = names_in(words, user_of(viewer))
        return chosen(await self.client.rows(viewer, queries.endpoints_named(names)), names)

    async def find(self, viewer: Viewer, words: list[str]) -> Upstream:
        """Return the server for a viewer's path. Raises the errors of `iris.dashboard.endpoint_rules`."""
        row = await self._endpoint(viewer, words)
        task_id, _, attempt = str(row["attempt_id"]).rpartition(":")
        task = await self.client.task(viewer, task_id)
        worker = ""
        if str(task.attempt) == attempt:
            workers = (await self.client.status(viewer)).workers
            worker = next((each.address for each in workers if each.worker_id == task.worker_id and each.connected), "")
        return upstream_of(row, worker, own_addresses())


@functools.cache
def own_addresses() -> frozenset[str]:
    """Return the addresses of this machine."""
    return frozenset(
        address.address.partition("%")[0].lower()
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family.name in ("AF_INET", "AF_INET6")
    )


def _at_port(connection: HTTPConnection, port: int) -> str:
    """Return the origin with this port and the host name of the browser's request."""
    return f"{connection.url.scheme}://{host_name(connection.headers.get('host', ''))}:{port}"
