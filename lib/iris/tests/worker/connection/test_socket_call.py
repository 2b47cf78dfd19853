"""A worker's stream by the controller's socket, against a scripted controller."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from iris.controller.access.stream_server import StreamServer
from iris.rpc.frames import Opening
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.connection.socket_call import SocketCall
from rigging.errors import Denied, Unavailable


async def test_messages_go_there_and_back_until_one_side_is_done(tmp_path: Path) -> None:
    seen: list[Opening] = []

    def admit(opening: Opening) -> tuple[Callable[[bytes], Any], Callable[[Any, Any], Awaitable[None]]]:
        seen.append(opening)
        return pb.WorkerMessage.FromString, serve

    async def serve(messages: Any, context: Any) -> None:
        async for message in messages:
            if message.beat == 7:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you")
            await context.write(pb.ControllerMessage(beat_ack=message.beat))

    path = tmp_path / "s"
    with pytest.raises(OSError, match="No such file"):
        await SocketCall.connect(str(path), "token")
    server = StreamServer(path, admit)
    await server.start()
    call, refused, broken = [await SocketCall.connect(str(path), "token") for _ in range(3)]
    for beat in (1, 2, 3):
        await call.write(pb.WorkerMessage(beat=beat, logs=[pb.LogAppend(data=bytes(100_000))]))
    assert [(await call.read()).beat_ack for _ in range(3)] == [1, 2, 3]
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    with pytest.raises(Unavailable):
        await call.write(pb.WorkerMessage())
    call.cancel()
    assert seen[0].method == "/iris.v1.WorkerService/Session"
    assert dict(seen[0].metadata)["authorization"] == "Bearer token"
    await refused.write(pb.WorkerMessage(beat=7))
    with pytest.raises(Denied, match="not you"):
        await refused.read()
    broken.cancel()
    with pytest.raises(Unavailable, match="the connection to the controller broke"):
        await broken.read()
    assert await broken.details() == "the connection to the controller broke"
    await server.stop(0)


@pytest.mark.parametrize(
    ("sent", "words"),
    [(b"\xff" * 64, "at most .* are allowed|a frame of kind"), (b"", "the connection to the controller broke")],
)
async def test_one_that_speaks_something_else_or_nothing_is_hung_up_on(tmp_path: Path, sent: bytes, words: str) -> None:
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(sent)
        if not sent:
            writer.close()
        while await reader.read(65536):
            pass
        hung_up.set()
        writer.close()

    async with asyncio.timeout(20), await asyncio.start_unix_server(serve, tmp_path / "s"):
        call = await SocketCall.connect(str(tmp_path / "s"), "token")
        with pytest.raises(Unavailable, match=words):
            await call.read()
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        if sent:
            await hung_up.wait()
        call.cancel()
