"""A session's stream by socket, against a listener that does as it is told, and by gRPC."""

import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.client.connection.streams import GrpcStream, SessionBroken, SocketStream, open_stream
from iris.rpc.frames import FrameKind, end_frame, frame
from iris.rpc.generated import iris_pb2 as pb

METADATA = (("authorization", "Bearer t"),)
NEWS = pb.ClientNews(ended=[pb.JobStatus(job_id="/a/b")])


class Listener:
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()

    def accept(self) -> None:
        self.peer, _ = self._listening.accept()
        self.peer.settimeout(20)

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


@pytest.mark.parametrize("ended_by", ["caller", "controller"])
def test_its_end_is_that_of_a_controller_that_is_away_and_leaves_no_descriptor(
    listener: Listener, ended_by: str
) -> None:
    messages: list[pb.ClientMessage] = []
    stream = stream_to(listener, messages)
    with ThreadPoolExecutor(1) as pool:
        hearing = pool.submit(list, stream.news())
        stream.close() if ended_by == "caller" else listener.peer.close()
        with pytest.raises(SessionBroken) as broken:
            hearing.result(20)
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
        (end_frame(grpc.StatusCode.PERMISSION_DENIED, "not you"), "PERMISSION_DENIED: not you"),
    ],
    ids=["message", "size", "kind", "refused"],
)
def test_what_is_refused_or_cannot_be_understood_ends_it_for_all_who_wait(
    listener: Listener, data: bytes, words: str
) -> None:
    stream = stream_to(listener, [])
    listener.peer.sendall(frame(FrameKind.MESSAGE, NEWS.SerializeToString()) + data)
    heard = stream.news()
    with pytest.raises(SessionBroken, match=words):
        assert [next(heard) for _ in range(2)] == []


def test_to_hear_nothing_for_longer_than_a_message_may_take_is_no_failure(listener: Listener) -> None:
    stream = stream_to(listener, [], timeout_s=0.01)
    later = threading.Timer(0.05, listener.peer.sendall, [frame(FrameKind.MESSAGE, NEWS.SerializeToString())])
    later.start()
    assert next(stream.news()) == NEWS
    later.join()
    stream.close()


class Stub:
    """The stub of a channel on which the test is gRPC's thread that sends."""

    def Session(self, messages: Iterator[pb.ClientMessage], *, metadata: Any) -> Iterator[pb.ClientNews]:
        self.messages, self.metadata = messages, metadata
        return iter([NEWS])


@pytest.mark.parametrize("closed", [False, True])
def test_by_grpc_it_is_asked_now_and_then_and_at_the_end_whether_it_is_used(closed: bool) -> None:
    asked: list[int] = []

    def is_done() -> bool:
        asked.append(1)
        return closed or len(asked) == 3

    stub = Stub()
    stream = GrpcStream(cast(Any, stub), METADATA, idle_s=600 if closed else 0.001)
    stream.begin(lambda: None, is_done)
    assert (stub.metadata, list(stream.news())) == (METADATA, [NEWS])
    if closed:
        stream.close()
    assert list(stub.messages) == []
    assert len(asked) == (1 if closed else 3)


def test_by_grpc_what_is_there_later_is_sent_at_once() -> None:
    waiting, stub = [pb.ClientMessage(waiting=True)], Stub()
    stream = GrpcStream(cast(Any, stub), METADATA, idle_s=600)
    stream.begin(lambda: waiting.pop(0) if waiting else None, lambda: False)
    assert next(stub.messages).waiting
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(next, stub.messages)
        eventually(lambda: stream._sleeps, "it waits")
        waiting.append(pb.ClientMessage(watch=["/a"]))
        stream.wake()
        assert list(sending.result(20).watch) == ["/a"]
