"""Either end of a stream: how much it keeps, when it writes, and what ends it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from iris.rpc.framed_stream import FramedStream
from iris.rpc.frames import FrameKind, frame
from rigging.errors import InvalidRequest, MarinError, Unavailable


class Wire(asyncio.Transport):
    """A transport that notes what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Any] = []
        self.closing = False

    def write(self, data: Any) -> None:
        self.done.append(bytes(data))

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        assert not self.closing, "asyncio's own transports raise here"
        self.done.append("resume")

    def write_eof(self) -> None:
        self.done.append("eof")

    def close(self) -> None:
        self.done.append("close")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


class End(FramedStream):
    """An end that keeps messages and takes no other frame."""

    def __init__(self) -> None:
        super().__init__(most=1000)
        self.refused: list[str] = []
        self.wire = Wire()

    def take(self, kind: FrameKind, content: bytes) -> None:
        if kind is not FrameKind.MESSAGE:
            raise InvalidRequest(f"no {kind.name} now")
        self.put(content)

    def refuse(self, error: MarinError) -> None:
        self.refused.append(str(error))


def with_end(test: Callable[[End], Coroutine[Any, Any, None]], connected: bool = True) -> None:
    async def run() -> None:
        end = End()
        if connected:
            end.connection_made(end.wire)
        await asyncio.wait_for(test(end), 20)

    asyncio.run(run())


def message(number: int) -> bytes:
    return frame(FrameKind.MESSAGE, b"%d" % number)


def test_no_more_is_taken_from_the_socket_than_is_read() -> None:
    async def test(end: End) -> None:
        for number in range(15):
            end.data_received(message(number))
        assert end.wire.done == []
        end.data_received(message(15) + message(16))
        assert end.wire.done == ["pause"]
        assert await anext(end.incoming) == b"0"
        assert end.wire.done == ["pause", "resume"]
        assert [await anext(end.incoming) for _ in range(16)] == [b"%d" % number for number in range(1, 17)]
        assert end.wire.done == ["pause", "resume"]
        for number in range(16):
            end.data_received(message(number))
        assert end.wire.done == ["pause", "resume", "pause"]

    with_end(test)


def test_what_came_before_the_end_is_read_though_the_socket_is_closed() -> None:
    async def test(end: End) -> None:
        for number in range(16):
            end.data_received(message(number))
        end.close()
        end.connection_lost(None)
        assert [data async for data in end.incoming] == [b"%d" % number for number in range(16)]

    with_end(test)


@pytest.mark.parametrize("how", ["a message", "the end of the other half", "the loss of the connection"])
def test_a_reader_waits_for_the_next_message_or_the_end(how: str) -> None:
    async def test(end: End) -> None:
        end.incoming.decode = int
        reading = asyncio.create_task(anext(end.incoming, None))
        await asyncio.sleep(0)
        assert not reading.done()
        if how == "a message":
            end.data_received(message(7))
        elif how == "the end of the other half":
            assert end.eof_received(), "what is still to be said is sent"
        else:
            end.connection_lost(None)
        assert await reading == (7 if how == "a message" else None)

    with_end(test)


def test_a_frame_that_may_not_come_is_refused_and_those_before_it_are_kept() -> None:
    async def test(end: End) -> None:
        end.data_received(message(1) + frame(FrameKind.END, b"") + message(2))
        assert end.refused == ["no END now"]
        end.data_received(b"\xff\xff\xff\xff\x02")
        assert end.refused[1:] == ["a message of 4294967295 bytes; at most 1000 are allowed"]
        assert await anext(end.incoming) == b"1"

    with_end(test)


@pytest.mark.parametrize("lost", [False, True])
def test_a_writer_waits_for_room_and_not_for_a_connection_that_is_gone(lost: bool) -> None:
    async def test(end: End) -> None:
        await end.write(b"a")
        end.pause_writing()
        writing = asyncio.create_task(end.write(b"b"))
        await asyncio.sleep(0)
        assert not writing.done()
        assert end.wire.done == [b"a", b"b"]
        if lost:
            end.connection_lost(ConnectionResetError())
        else:
            end.resume_writing()
        await writing

    with_end(test)


@pytest.mark.parametrize(
    "finish", [FramedStream.close, FramedStream.close_half, lambda end: end.write_last(b"last")],
    ids=["closed", "half closed", "after the last word"],
)  # fmt: skip
def test_nothing_is_sent_behind_the_end(finish: Callable[[End], None]) -> None:
    async def test(end: End) -> None:
        finish(end)
        said = list(end.wire.done)
        assert said in (["close"], ["eof"], [b"last", "close"])
        with pytest.raises(Unavailable, match="the connection is closed"):
            await end.write(b"more")
        if end.wire.closing:
            end.write_last(b"more")
            end.close_half()
        assert end.wire.done == said

    with_end(test)


def test_before_there_is_a_connection_nothing_can_be_sent() -> None:
    async def test(end: End) -> None:
        with pytest.raises(Unavailable):
            await end.write(b"early")
        end.write_last(b"early")
        end.close_half()
        end.close()
        end.put(b"kept")
        assert len(end.incoming) == 1
        assert end.wire.done == []

    with_end(test, connected=False)
