"""The application: the cluster's pages, and those of installed packages."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from starlette.applications import Starlette
from starlette.routing import Route

from iris.dashboard.cluster_client import ClusterClient, is_admin
from iris.dashboard.cluster_pages import ClusterPages
from iris.dashboard.job_facts import named
from iris.dashboard.job_pages import JobPages
from iris.dashboard.live import LiveNews
from iris.dashboard.log_pages import LogPages
from iris.dashboard.settings import Settings
from iris.dashboard.task_pages import COOKIES, TaskPages
from rigging.web.app import create_app
from rigging.web.context import WebSettings
from rigging.web.events import Broadcaster
from rigging.web.login import Sessions
from rigging.web.pages import NavItem, PageSet, offered_page_sets
from rigging.web.proxy.own_hosts import OwnHosts
from rigging.web.revocation import RevokedGrants

NAME = "iris"
_PUBLIC = frozenset({"/health", "/ready", "/metrics"})


def cluster_pages(client: ClusterClient, live: LiveNews, tasks: TaskPages) -> PageSet:
    """Return the cluster's pages.

    Args:
        client: The controller.
        live: Changes of the cluster.
        tasks: Pages that tasks serve.
    """

    def lifespan() -> AbstractAsyncContextManager[None]:
        return live.listening()

    return PageSet(
        name=NAME,
        routes=[
            *JobPages(client).routes(),
            *LogPages(client).routes(),
            *ClusterPages(client, tasks.port).routes(),
            *tasks.routes(),
            Route("/events", live.events),
        ],
        package="iris.dashboard",
        nav=(
            NavItem("Overview", "/cluster", group="Cluster"),
            NavItem("Jobs", "/jobs", group="Cluster"),
            NavItem("Queue", "/queue", group="Cluster"),
            NavItem("Workers", "/workers", group="Cluster"),
            NavItem("Users", "/users", group="Cluster"),
            NavItem("Endpoints", "/endpoints", group="Cluster"),
            NavItem("Controller", "/controller", group="Cluster"),
            NavItem("SQL", "/sql", group="Cluster"),
        ),
        public_paths=_PUBLIC,
        globals={"named": named},
        lifespan=lifespan,
    )


def cookie_of(key: bytes) -> str:
    """Return the name of the session cookie. It depends on the cluster, because tunnels may show several clusters under
    one host name.

    Args:
        key: Signs the sessions of this cluster.
    """
    return f"{COOKIES}-{hashlib.sha256(b'cookie:' + key).hexdigest()[:8]}"


def make_application(
    settings: Settings,
    others: Sequence[PageSet] | None = None,
    *,
    task_port: int = 0,
    home_port: int = 0,
) -> tuple[Starlette, LiveNews]:
    """Return the application, and the object that notifies its pages of changes.

    The application for the port of tasks' pages is its `state.task_pages`.

    Args:
        settings: The controller's address, and the key that signs sessions.
        others: Additional page sets; None for those of installed packages. They show the controller's files and are
            only for admins.
        task_port: Port for pages of tasks; 0 for none.
        home_port: Port of this application.
    """
    client = ClusterClient(settings.controller, bytes.fromhex(settings.secret), settings.ca_sha256)
    revoked = RevokedGrants()
    live = LiveNews(client, Broadcaster(), revoked)
    domain = settings.task_pages_domain
    tasks = TaskPages(client, task_port, home_port, OwnHosts(domain) if domain else None)
    name = settings.cluster_name or "local"
    if others is None:
        others = [replace(pages, viewers=is_admin) for pages in offered_page_sets({"jobs_url": "/job?id="})]
    app = create_app(
        WebSettings(
            title=f"iris · {name}",
            writable=True,  # each viewer's link says whether they may
            login_hint="Run `iris cluster dashboard`, which opens a single-use link.",
            cookie=cookie_of(bytes.fromhex(settings.key)),
            home="/cluster",
        ),
        [cluster_pages(client, live, tasks), *others],
        sessions=Sessions(bytes.fromhex(settings.key)),
        revoked=revoked,
    )
    app.state.task_pages = tasks.application(app.state.web)
    return app, live
