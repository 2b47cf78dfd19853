import asyncio
import itertools
import json
import socket

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.rpc.frames import FrameKind, FrameReader, Opening, end_frame, frame, read_end, read_frame, write_frame
from rigging.errors import InvalidRequest, Unavailable

FRAMES = st.lists(st.tuples(st.sampled_from(FrameKind), st.binary(max_size=40)), max_size=6)


@given(FRAMES, st.lists(st.integers(0, 300), max_size=12))
def test_frames_come_whole_and_in_order_however_they_are_cut(frames: list[tuple[FrameKind, bytes]], cuts) -> None:
    data = b"".join(frame(kind, content) for kind, content in frames)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    reader = FrameReader(most=40)
    found = [item for start, end in itertools.pairwise(places) for item in reader.feed(data[start:end])]
    assert found == frames


def test_a_frame_that_is_too_long_is_refused_by_its_length_alone_and_one_of_another_release() -> None:
    reader = FrameReader(most=10)
    assert list(reader.feed(frame(FrameKind.MESSAGE, bytes(10)))) == [(FrameKind.MESSAGE, bytes(10))]
    for data, reason in (
        (frame(FrameKind.MESSAGE, bytes(11))[:5], "a message of 11 bytes; at most 10 are allowed"),
        (b"\0\0\0\0\x09", "a frame of kind 9"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            list(FrameReader(most=10).feed(data))
        with pytest.raises(InvalidRequest, match=reason):
            read_all(data, most=10)


def test_an_opening_and_an_end_are_read_as_they_were_meant() -> None:
    opening = Opening("/a/b", (("authorization", "Bearer ä"), ("x", "")))
    ((kind, content),) = FrameReader(most=1000).feed(opening.to_frame())
    assert (kind, Opening.of(content)) == (FrameKind.OPENING, opening)
    ((kind, content),) = FrameReader(most=1000).feed(end_frame(grpc.StatusCode.NOT_FOUND, "no such"))
    assert (kind, read_end(content)) == (FrameKind.END, (grpc.StatusCode.NOT_FOUND, "no such"))


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"{}", b'{"method": "a"}', b'{"method": "a", "metadata": [1]}', b"[" * 5000]
)
def test_what_is_no_opening_is_refused_and_no_end_is_unknown(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="a stream begins with its method and metadata"):
        Opening.of(data)
    assert read_end(data)[0] is grpc.StatusCode.UNKNOWN
    assert read_end(json.dumps({"code": 99, "details": "x"}).encode()) == (grpc.StatusCode.UNKNOWN, "x")


def read_all(data: bytes, most: int = 40) -> list[tuple[FrameKind, bytes]]:
    async def read() -> list[tuple[FrameKind, bytes]]:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        found = []
        while (one := await read_frame(reader, most)) is not None:
            found.append(one)
        return found

    return asyncio.run(read())


@given(FRAMES, st.integers(1, 300))
def test_of_a_connection_that_breaks_whole_frames_come(frames: list[tuple[FrameKind, bytes]], cut: int) -> None:
    data = b"".join(frame(kind, content) for kind, content in frames)
    assert read_all(data) == frames
    assert read_all(data[:-cut]) == list(FrameReader(most=40).feed(data[:-cut]))


def test_a_writer_waits_for_room_and_not_for_a_connection_that_is_gone() -> None:
    async def test() -> None:
        ours, theirs = socket.socketpair()
        _, writer = await asyncio.open_unix_connection(sock=ours)
        data = frame(FrameKind.MESSAGE, bytes(1 << 20))
        waiting = asyncio.create_task(write_frame(writer, data))
        await asyncio.sleep(0)
        assert not waiting.done()
        theirs.close()
        with pytest.raises(Unavailable, match="the connection is closed"):
            await waiting
        writer.close()
        with pytest.raises(Unavailable, match="the connection is closed"):
            await write_frame(writer, data)

    asyncio.run(asyncio.wait_for(test(), 20))
