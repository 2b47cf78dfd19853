"""A session's stream by socket, against a listener that does as it is told."""

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from iris.client.connection.streams import GrpcStream, SessionBroken, SocketStream, open_stream
from iris.rpc import iris_pb2 as pb
from iris.rpc.frames import FrameKind, FrameReader, Opening, end_frame, frame

METADATA = (("authorization", "Bearer t"),)


class Listener:
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        self._frames = FrameReader(1 << 30)

    def accept(self) -> None:
        self.peer, _ = self._listening.accept()
        self.peer.settimeout(20)

    def frames(self, count: int) -> list[tuple[FrameKind, bytes]]:
        found: list[tuple[FrameKind, bytes]] = []
        while len(found) < count:
            found += self._frames.feed(self.peer.recv(1 << 20))
        return found

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    found = Listener(tmp_path / "s")
    yield found
    found.close()


def stream_to(listener: Listener, messages: list[pb.ClientMessage], timeout_s: float = 20) -> SocketStream:
    stream = SocketStream.connect(listener.path, METADATA, timeout_s)
    stream.begin(lambda: messages.pop(0) if messages else None, lambda: False)
    listener.accept()
    return stream


def test_it_opens_sends_all_there_is_and_hears(listener: Listener) -> None:
    messages = [pb.ClientMessage(watch=["/a/b"]), pb.ClientMessage(waiting=True)]
    expected = [(FrameKind.MESSAGE, message.SerializeToString()) for message in messages]
    stream = stream_to(listener, messages)
    stream.wake()
    opening, *sent = listener.frames(3)
    assert Opening.of(opening[1]) == Opening("/iris.v1.ClientService/Session", METADATA)
    assert sent == expected
    news = pb.ClientNews(ended=[pb.JobStatus(job_id="/a/b")])
    listener.peer.sendall(frame(FrameKind.MESSAGE, news.SerializeToString()))
    listener.peer.sendall(end_frame(grpc.StatusCode.PERMISSION_DENIED, "not you"))
    heard = stream.news()
    assert next(heard) == news
    with pytest.raises(SessionBroken, match="not you") as refused:
        next(heard)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    stream.wake()  # nothing to send, and nobody to send it to


@pytest.mark.parametrize("ended_by", ["caller", "controller"])
def test_its_end_is_that_of_a_controller_that_is_away_and_leaves_no_descriptor(
    listener: Listener, ended_by: str
) -> None:
    messages: list[pb.ClientMessage] = []
    stream = stream_to(listener, messages)
    stream.close() if ended_by == "caller" else listener.peer.close()
    with pytest.raises(SessionBroken) as broken:
        next(stream.news())
    assert broken.value.code() is grpc.StatusCode.UNAVAILABLE
    assert stream._socket.fileno() == -1
    messages.append(pb.ClientMessage())
    stream.wake()
    stream.close()


def test_a_message_that_is_not_taken_in_time_ends_it(listener: Listener) -> None:
    stream = stream_to(listener, [pb.ClientMessage(watch=["x" * (8 << 20)])], timeout_s=0.05)
    stream.wake()
    with pytest.raises(SessionBroken, match="the controller ended the session"):
        next(stream.news())


def test_a_message_that_was_interrupted_ends_it(listener: Listener) -> None:
    """A half of it may have gone, and what follows would be taken for the other half."""
    stream = stream_to(listener, [pb.ClientMessage(watch=["x" * (8 << 20)])])
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            stream.wake()
    finally:
        signal.signal(signal.SIGALRM, previous)
    with pytest.raises(SessionBroken):
        next(stream.news())


def test_one_who_waits_to_hear_hears_that_it_was_closed(listener: Listener) -> None:
    stream = stream_to(listener, [])
    errors: list[Exception] = []

    def hear() -> None:
        try:
            next(stream.news())
        except SessionBroken as error:
            errors.append(error)

    thread = threading.Thread(target=hear)
    thread.start()
    stream.close()
    thread.join(10)
    assert errors


def test_where_nobody_listens_grpc_is_taken(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SocketStream.connect(str(tmp_path / "s"), METADATA, 1)
    listener = Listener(tmp_path / "s")
    listener.close()
    for path in ("", str(tmp_path / "s"), str(tmp_path / "none"), str(tmp_path / ("a" * 200))):
        assert isinstance(open_stream(path, None, METADATA, 1), GrpcStream)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(FrameKind.MESSAGE, b"\xff"), "cannot be decoded: use the same release"),
        (b"\xff" * 5, "a message of 4294967295 bytes"),
        (b"\x00\x00\x00\x00\x09", "a frame of kind 9"),
    ],
)
def test_what_cannot_be_understood_ends_it_for_all_who_wait(listener: Listener, data: bytes, words: str) -> None:
    stream = stream_to(listener, [])
    listener.peer.sendall(data)
    with pytest.raises(SessionBroken, match=words):
        list(stream.news())


def test_to_hear_nothing_for_longer_than_a_message_may_take_is_no_failure(listener: Listener) -> None:
    stream = stream_to(listener, [], timeout_s=0.01)
    news = pb.ClientNews(ended=[pb.JobStatus(job_id="/a/b")])
    later = threading.Timer(0.05, listener.peer.sendall, [frame(FrameKind.MESSAGE, news.SerializeToString())])
    later.start()
    assert next(stream.news()) == news
    later.join()
    stream.close()
