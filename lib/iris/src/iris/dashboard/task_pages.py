"""Forwards requests to pages that tasks serve."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Final

import psutil
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from iris.dashboard import queries
from iris.dashboard.cluster_client import ClusterClient, user_of
from iris.dashboard.endpoint_rules import BASE, chosen, names_in, upstream_of
from rigging.errors import NotFound
from rigging.web.context import USUAL_COOKIE, Web
from rigging.web.hosts import host_name
from rigging.web.login import Viewer
from rigging.web.proxy.application import create_proxy
from rigging.web.proxy.forward import Forwarder, Patience
from rigging.web.proxy.headers import Upstream

#: What the names of the sessions' cookies of all dashboards begin with.
COOKIES: Final = "iris-session"


@dataclass(slots=True)
class TaskPages:
    """Finds the servers of tasks.

    Args:
        client: The controller.
        port: The port of tasks' pages, different from that of the other pages; 0 for none.
        home_port: Port of the other pages.
        patience: Timeout for tasks' servers.
    """

    client: ClusterClient
    port: int = 0
    home_port: int = 0
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
        return create_proxy(web, self.find, forwarder, lambda connection: _at_port(connection, self.home_port))

    async def redirect(self, request: Request) -> Response:
        """Redirect to the same path at the port of tasks' pages."""
        if not self.port:
            raise NotFound("this server shows no pages of tasks")
        path = request.scope["raw_path"].decode("latin-1")
        query = request.scope["query_string"].decode("latin-1")
        return RedirectResponse(_at_port(request, self.port) + path + (f"?{query}" if query else ""), 307)

    async def find(self, viewer: Viewer, words: list[str]) -> Upstream:
        """Return the server for a viewer's path. Raises the errors of `iris.dashboard.endpoint_rules`."""
        names = names_in(words, user_of(viewer))
        row = chosen(await self.client.rows(viewer, queries.endpoints_named(names)), names)
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
