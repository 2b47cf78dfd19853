"""Connections that send nothing, little, or too slowly lock nobody out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from rigging.web.connections import bounded_http
from rigging.web.serving import bind

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf"
Talk = Callable[[int], Awaitable[None]]


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"sl", "more_body": True})
    if scope["path"] == "/slow":
        await asyncio.sleep(0.6)
    await send({"type": "http.response.body", "body": b"ow"})


async def connect(port: int, content: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(content)
    await writer.drain()
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> bytes:
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    return await asyncio.wait_for(reader.readexactly(4), 10)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    return await asyncio.wait_for(reader.read(), 10) == b""


async def what_is_late_is_closed(port: int) -> None:
    for content in (b"", REQUEST[:9], UPLOAD):
        reader, writer = await connect(port, content)
        assert await is_closed(reader), content
        writer.close()


async def a_second_request_has_its_own_deadline(port: int) -> None:
    reader, writer = await connect(port, REQUEST)
    assert await answer(reader) == b"slow"
    writer.write(REQUEST[:9])
    assert await is_closed(reader)
    writer.close()


async def an_answer_may_take_longer(port: int) -> None:
    reader, writer = await connect(port, REQUEST.replace(b"/ ", b"/slow "))
    assert await answer(reader) == b"slow"
    writer.close()


async def others_are_answered_beside_many_idle_ones(port: int) -> None:
    slow, slow_writer = await connect(port, REQUEST.replace(b"/ ", b"/slow "))
    idle = [await connect(port) for _ in range(20)]
    reader, writer = await connect(port, REQUEST)
    assert await answer(reader) == b"slow"
    assert await is_closed(idle[0][0])
    assert await answer(slow) == b"slow", "one that is answered is not idle"
    for _, each in [*idle, (None, writer), (None, slow_writer)]:
        each.close()


@pytest.fixture
def serve() -> Callable[[Talk, float], None]:
    async def run(talk: Talk, seconds: float) -> None:
        bound = bind(0)
        http = bounded_http(request_seconds=seconds, most_idle=5)
        server = uvicorn.Server(uvicorn.Config(app, http=http, log_config=None, lifespan="off", limit_concurrency=10))
        serving = asyncio.create_task(server.serve(sockets=[bound.socket]))
        try:
            await talk(bound.port)
        finally:
            server.should_exit = server.force_exit = True
            await serving

    return lambda talk, seconds: asyncio.run(run(talk, seconds))


@pytest.mark.parametrize(
    ("talk", "seconds"),
    [
        (what_is_late_is_closed, 0.2),
        (a_second_request_has_its_own_deadline, 0.2),
        (an_answer_may_take_longer, 0.2),
        (others_are_answered_beside_many_idle_ones, 60),
    ],
)
def test_connections(serve: Callable[[Talk, float], None], talk: Talk, seconds: float) -> None:
    serve(talk, seconds)
