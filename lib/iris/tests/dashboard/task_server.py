"""A small server as tasks have them: HTTP and WebSockets, at a real port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from rigging.web.serving import bind
from support.rigging.web import served

PAGE = """<!doctype html><title>board</title><h1>board</h1><p id=fetched></p><p id=echo></p><script>
fetch("data?x=1").then(a => a.json()).then(d => { document.querySelector("#fetched").textContent = d.path; });
const socket = new WebSocket(location.href.replace("http", "ws") + "echo");
socket.onopen = () => socket.send("hello");
socket.onmessage = m => { document.querySelector("#echo").textContent = m.data; };
</script>"""


async def _page(request: Request) -> Response:
    return HTMLResponse(PAGE)


async def _tell(request: Request) -> Response:
    """Say what arrived."""
    path = f"{request.scope['raw_path'].decode()}?{request.scope['query_string'].decode()}"
    size = len(await request.body())
    return JSONResponse({"method": request.method, "path": path, "headers": dict(request.headers), "size": size})


async def _away(request: Request) -> Response:
    return RedirectResponse(request.query_params["to"])


async def _cookies(request: Request) -> Response:
    private = {"service-worker-allowed": "/", "clear-site-data": "*", "connection": "x-private", "x-private": "1"}
    response = Response("ok", headers=private)
    response.set_cookie("mine", "1", path="/", domain="example.com")
    response.set_cookie("iris-session", "forged")
    response.set_cookie("iris-session-0a0a0a0a", "forged")
    response.raw_headers.append((b"set-cookie", b"=iris-session=forged"))
    return response


async def _slow(request: Request) -> Response:
    """Send one piece, and the next when the first was told."""
    told: asyncio.Event = request.app.state.told

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await told.wait()
        yield b"two"

    return StreamingResponse(pieces())


async def _go_on(request: Request) -> Response:
    request.app.state.told.set()
    return Response("ok")


async def _echo(socket: WebSocket) -> None:
    await socket.accept(next(iter(socket.scope["subprotocols"]), None))
    async for text in socket.iter_text():
        if text == "end":
            await socket.close(4000, "as you wish")
            return
        await socket.send_text(text + " " + ",".join(socket.cookies))


def task_app() -> Starlette:
    app = Starlette(
        routes=[
            Route("/", _page), Route("/away", _away), Route("/cookies", _cookies), Route("/slow", _slow),
            Route("/go-on", _go_on), WebSocketRoute("/echo", _echo),
            Route("/{path:path}", _tell, methods=["GET", "POST", "PUT"]),
        ]
    )  # fmt: skip
    app.state.told = asyncio.Event()
    return app


@contextmanager
def task_server(port: int = 0) -> Iterator[int]:
    bound = bind(port, strict=bool(port))
    with served((task_app(), bound)):
        yield bound.port
