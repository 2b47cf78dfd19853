"""All components of the pages on one page, for their development: `python -m rigging.web.design [PORT]`."""

from __future__ import annotations

import sys
import time
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rigging.web.app import create_app
from rigging.web.context import WebSettings, render
from rigging.web.pages import NavItem, PageSet
from rigging.web.paging import Page
from rigging.web.serving import LOOPBACK, bind, serve

_STATES: Final = ("succeeded", "cached", "running", "queued", "retrying", "stopped", "failed")


def design_app() -> Starlette:
    """Return an application with the page `/design` only. It needs no login."""

    def design(request: Request) -> Response:
        return render(request, "web/design.html", now=time.time(), states=_STATES, page=Page((), 3, 412))

    nav = (NavItem("Design", "/design", group="Cluster"), NavItem("Runs", "/runs", group="Experiments"))
    pages = PageSet("design", [Route("/design", design)], nav=nav)
    return create_app(WebSettings("marin", login=False, home="/design"), [pages])


def main() -> None:
    """Serve the page on loopback."""
    bound = bind(int(sys.argv[1]) if len(sys.argv) > 1 else 0, LOOPBACK)
    sys.stdout.write(f"{bound.url}/design\n")
    sys.stdout.flush()
    serve(design_app(), bound, lambda: None)


if __name__ == "__main__":
    main()
