"""Serve an application: on loopback by default, on a free port if the requested one is taken."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from rigging.errors import InvalidRequest, Unavailable
from rigging.web.connections import bounded_http

LOOPBACK: Final = "127.0.0.1"
_STOP_SECONDS: Final = 3
_MOST_CONNECTIONS: Final = 2000
_MOST_HEAD_BYTES: Final = 1 << 20
"""A browser sends up to 180 cookies of 4 kB, those of other ports of this host included: none locks its user out."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A listening socket.

    Attributes:
        socket: The socket.
        host: The address or name, as requested.
        port: Its port.
        note: A message for the user if the port is not the requested one; else "".
    """

    socket: socket.socket
    host: str
    port: int
    note: str = ""

    @property
    def url(self) -> str:
        """The server's address, without a trailing slash."""
        host = {"0.0.0.0": LOOPBACK, "::": "[::1]", "": LOOPBACK}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{self.port}"


def bind(port: int, host: str = LOOPBACK, *, strict: bool = False) -> Bound:
    """Return a listening socket on a port, or on a free one if that is taken.

    Args:
        port: The requested port; 0 for any.
        host: An address or name of this machine.
        strict: Raise if the port is taken.

    Raises:
        InvalidRequest: The host does not belong to this machine, or the port is invalid.
        Unavailable: The port is taken, and no other is allowed.
    """
    if not 0 <= port <= 65535:
        raise InvalidRequest(f"port {port}: must be from 0 (any) to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(f"host {host!r} is not an address or name of this machine: {error}") from error
    note = ""
    sock = _listening(family)
    try:
        try:
            sock.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise InvalidRequest(f"host {host!r} is not an address of this machine") from error
            taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
            if strict or not port or not taken:
                raise Unavailable(f"cannot listen on {host} port {port}: {error.strerror}") from error
            sock.bind((address[0], 0, *address[2:]))
            note = f"port {port} is {'taken' if error.errno == errno.EADDRINUSE else 'not allowed'}; using a free one"
        sock.listen(128)
    except BaseException:
        sock.close()
        raise
    return Bound(sock, host, sock.getsockname()[1], note)


def _listening(family: int) -> socket.socket:
    # With its protocol named, asyncio turns Nagle's algorithm off: else each small page takes 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # A server that is started again at once gets its port, although connections of the last one linger.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sock


class WebServer:
    """Serve an application in the program's own event loop.

    Args:
        app: The application.
        bound: The listening socket.
        before_stop: Called before stopping, to end streams that would delay the stop.
    """

    def __init__(self, app: ASGIApp, bound: Bound, before_stop: Callable[[], object] = lambda: None) -> None:
        self._app = app
        self._bound = bound
        self._before_stop = before_stop
        self._server = _QuietServer(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,  # it would have the tokens of login links
                lifespan="on",
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=_STOP_SECONDS,
                timeout_keep_alive=30,
                limit_concurrency=_MOST_CONNECTIONS,
                http=bounded_http(),
                h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
            )
        )

    async def run(self) -> None:
        """Serve until `stop` is called, then finish open requests."""
        await self._server.serve(sockets=[self._bound.socket])

    def stop(self) -> None:
        """Make `run` return soon. Safe in the loop's signal handlers."""
        self._before_stop()
        if isinstance(self._app, Starlette) and hasattr(self._app.state, "web"):
            self._app.state.web.channels.close()
        self._server.should_exit = True


class _QuietServer(uvicorn.Server):
    """A server that leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        """Capture no signals."""
        yield


def serve(app: ASGIApp, bound: Bound, before_stop: Callable[[], object] = lambda: None) -> None:
    """Serve an application until SIGINT or SIGTERM, for programs that do nothing else.

    Args:
        app: The application.
        bound: The listening socket.
        before_stop: As in `WebServer`.
    """
    asyncio.run(_serve(app, bound, before_stop))


async def _serve(app: ASGIApp, bound: Bound, before_stop: Callable[[], object]) -> None:
    import signal

    server = WebServer(app, bound, before_stop)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    await server.run()
