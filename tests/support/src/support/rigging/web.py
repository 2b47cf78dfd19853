"""Serve applications in tests."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from rigging.web.serving import Bound, WebServer


@contextmanager
def served(*apps: tuple[ASGIApp, Bound]) -> Iterator[None]:
    """Context manager: serve applications in an event loop of a thread."""
    servers = [WebServer(app, bound) for app, bound in apps]

    async def run() -> None:
        await asyncio.gather(*(server.run() for server in servers))

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        for server in servers:
            server.stop()
        thread.join(30)
        assert not thread.is_alive()
