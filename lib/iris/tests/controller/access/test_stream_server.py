import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.controller.access.stream_server import StreamServer
from iris.rpc.auth import PrincipalKind
from iris.rpc.frames import FrameKind, FrameReader, Metadata, Opening, frame, read_end
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import MAX_REQUEST_BYTES, SOCKET_NAME, call_metadata
from rigging.errors import Denied
from support.iris.controller import RunningController

CLIENTS = "/iris.v1.ClientService/Session"
WORKERS = "/iris.v1.WorkerService/Session"
SUBMIT = "/iris.v1.JobService/SubmitJob"


class Caller:
    """A caller that says what it likes."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self._frames = FrameReader(1 << 30)
        self._received = iter(())

    def open(self, metadata: Metadata, method: str = CLIENTS) -> "Caller":
        self.socket.sendall(Opening(method, metadata).to_frame())
        return self

    def send(self, message: Any) -> None:
        self.socket.sendall(frame(FrameKind.MESSAGE, message.SerializeToString()))

    def frames(self) -> Iterator[tuple[FrameKind, bytes]]:
        while data := self.socket.recv(65536):
            yield from self._frames.feed(data)

    def end(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ended; nothing else may have come."""
        ((kind, content),) = self.frames()
        assert kind is FrameKind.END
        return read_end(content)


@pytest.fixture
def path(controller: RunningController) -> Path:
    return controller.config.state_dir / SOCKET_NAME


def test_only_its_user_may_use_it(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("kind", "version", "method", "code", "words"),
    [
        (None, "", CLIENTS, grpc.StatusCode.UNAUTHENTICATED, "no token"),
        (PrincipalKind.USER, "1", CLIENTS, grpc.StatusCode.FAILED_PRECONDITION, "protocol version 1"),
        (PrincipalKind.USER, "", WORKERS, grpc.StatusCode.PERMISSION_DENIED, "may not open sessions"),
        (PrincipalKind.USER, "", SUBMIT, grpc.StatusCode.INVALID_ARGUMENT, "is not a stream of this socket"),
    ],
)
def test_a_stream_is_judged_before_a_message_is_read(
    controller: RunningController,
    path: Path,
    kind: PrincipalKind | None,
    version: str,
    method: str,
    code: grpc.StatusCode,
    words: str,
) -> None:
    token = (("authorization", f"Bearer {controller.token(kind, 'ann')}"),) if kind else ()
    told, text = Caller(path).open((*token, *((("iris-protocol-version", version),) if version else ())), method).end()
    assert (told, words in text) == (code, True)


def test_the_rules_of_each_call_hold(controller: RunningController, path: Path) -> None:
    caller = Caller(path).open(call_metadata(controller.token(PrincipalKind.USER, "eve")))
    submit = pb.SubmitJobRequest(spec=pb.JobSpec(job_id="/ann/hers"))
    caller.send(pb.ClientMessage(calls=[pb.ClientCall(call_id=1, submit=submit), pb.ClientCall(call_id=2)]))
    kind, content = next(caller.frames())
    assert kind is FrameKind.MESSAGE
    refused, unknown = pb.ClientNews.FromString(content).replies
    assert (refused.call_id, refused.error.code) == (1, grpc.StatusCode.PERMISSION_DENIED.value[0])
    assert (unknown.call_id, unknown.error.code) == (2, grpc.StatusCode.INVALID_ARGUMENT.value[0])
    assert unknown.error.message.startswith("a call of this kind is unknown")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(FrameKind.MESSAGE, b""), "begins with its opening"),
        (frame(FrameKind.OPENING, b"{}"), "begins with its method"),
        (frame(FrameKind.OPENING, bytes(17 * 1024))[:5], "at most 16384 are allowed"),
    ],
)
def test_what_is_no_opening_ends_the_stream(path: Path, data: bytes, words: str) -> None:
    caller = Caller(path)
    caller.socket.sendall(data)
    code, text = caller.end()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words in text


def test_a_message_that_is_too_long_or_garbage_ends_the_stream(controller: RunningController, path: Path) -> None:
    metadata = call_metadata(controller.user_token)
    caller = Caller(path).open(metadata)
    caller.socket.sendall(frame(FrameKind.MESSAGE, b"\x0a\xff\xff\xff"))
    code, text = caller.end()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith(f"a message of {CLIENTS} cannot be decoded")
    caller = Caller(path).open(metadata)
    caller.socket.sendall((MAX_REQUEST_BYTES + 1).to_bytes(4, "little") + bytes([FrameKind.MESSAGE]))
    assert caller.end()[0] is grpc.StatusCode.INVALID_ARGUMENT


class Server:
    """A server in a loop of its own, whose streams repeat what they are told."""

    def __init__(self, path: Path, serve: Any = None, **settings: Any) -> None:
        self._may_take = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.server = StreamServer(path, lambda _: (bytes, serve or self._serve), **settings)
        self.run(self.server.start())

    def may_take(self) -> None:
        """From now on messages are read."""
        self._loop.call_soon_threadsafe(self._may_take.set)

    def begin(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Any) -> Any:
        return self.begin(work).result(20)

    async def _serve(self, messages: Any, context: Any) -> None:
        await self._may_take.wait()
        async for data in messages:
            await context.write(pb.WatchRefused(job_id=data.decode()))

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self.run(self.server.stop(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)


Serving = Callable[..., Server]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """Starts the one server of a test, at `path` or at "s"; it ends with the test, if not before."""
    servers: list[Server] = []

    def start(*given: Any, path: Path = tmp_path / "s", **settings: Any) -> Server:
        servers.append(Server(path, *given, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def test_a_caller_that_says_nothing_is_let_go_after_its_time(serving: Serving, tmp_path: Path) -> None:
    serving(opening_s=0.05)
    assert list(Caller(tmp_path / "s").frames()) == []
    serving(path=tmp_path / "patient", opening_s=600)
    caller = Caller(tmp_path / "patient")
    caller.socket.shutdown(socket.SHUT_WR)
    assert list(caller.frames()) == [], "at once when it closes its half without a word"


def test_nothing_is_kept_of_a_caller_that_went(serving: Serving, tmp_path: Path) -> None:
    server = serving()
    caller = Caller(tmp_path / "s").open(())
    server.may_take()
    eventually(lambda: len(server.server) == 1, "it is there")
    caller.socket.close()
    eventually(lambda: len(server.server) != 1, "it is gone")
    assert len(server.server) == 0


def test_a_stop_ends_the_streams_that_stay(serving: Serving, tmp_path: Path) -> None:
    server = serving()
    caller = Caller(tmp_path / "s").open(())
    server.may_take()
    caller.socket.sendall(frame(FrameKind.MESSAGE, b"a"))
    frames = caller.frames()
    next(frames)
    server.close()
    assert list(frames) == []
    assert not (tmp_path / "s").exists()


def test_where_the_path_is_too_long_there_is_no_socket(serving: Serving, tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100)
    folder.mkdir()
    serving(path=folder / "s")
    assert not (folder / "s").exists()


def test_a_caller_that_has_begun_may_be_silent_for_as_long_as_it_likes(serving: Serving, tmp_path: Path) -> None:
    server = serving(opening_s=0.05)
    caller = Caller(tmp_path / "s").open(())
    server.may_take()
    caller.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        next(caller.frames())
    caller.socket.sendall(frame(FrameKind.MESSAGE, b"a"))
    caller.socket.settimeout(20)
    assert next(caller.frames())[0] is FrameKind.MESSAGE


def test_a_stop_leaves_streams_the_time_to_end_by_themselves(serving: Serving, tmp_path: Path) -> None:
    server = serving()
    caller = Caller(tmp_path / "s").open(())
    caller.socket.sendall(frame(FrameKind.MESSAGE, b"a"))
    caller.socket.shutdown(socket.SHUT_WR)
    eventually(lambda: len(server.server) == 1, "it is there")
    stopping = server.begin(server.server.stop(20))
    eventually(lambda: not (tmp_path / "s").exists(), "it takes nobody more")
    server.may_take()
    (message, _), (end, content) = caller.frames()
    assert (message, end, read_end(content)) == (FrameKind.MESSAGE, FrameKind.END, (grpc.StatusCode.OK, ""))
    stopping.result(20)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (Denied("not you"), (grpc.StatusCode.PERMISSION_DENIED, "not you")),
        (ZeroDivisionError("by 0"), (grpc.StatusCode.UNKNOWN, "ZeroDivisionError('by 0')")),
        (None, (grpc.StatusCode.NOT_FOUND, "told so")),
    ],
)
def test_how_it_failed_is_told(serving: Serving, tmp_path: Path, error: Exception | None, end: tuple[Any, str]) -> None:
    async def serve(messages: Any, context: Any) -> None:
        if error is not None:
            raise error
        await context.abort(grpc.StatusCode.NOT_FOUND, "told so")

    serving(serve)
    assert Caller(tmp_path / "s").open(()).end() == end


@pytest.mark.parametrize(("user", "served"), [(os.getuid(), True), (0, True), (os.getuid() + 12345, False)])
def test_processes_of_other_users_are_not_heard(serving: Serving, tmp_path: Path, user: int, served: bool) -> None:
    """Its mode keeps them out, too, but not one who was let into the folder before."""
    server = serving(user_of=lambda connection: user)
    caller = Caller(tmp_path / "s")
    with contextlib.suppress(BrokenPipeError):
        caller.open(())
        caller.socket.shutdown(socket.SHUT_WR)
    server.may_take()
    with contextlib.suppress(ConnectionResetError):
        assert bool(list(caller.frames())) == served
