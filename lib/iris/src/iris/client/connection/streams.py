"""The two transports of a client's session: a Unix socket on the controller's own machine, otherwise gRPC."""

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import grpc
from google.protobuf.message import DecodeError

from iris.rpc.frames import FrameKind, FrameReader, Metadata, Opening, frame, read_end
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.generated.iris_pb2_grpc import ClientServiceStub
from iris.rpc.protocol import MAX_MESSAGE_BYTES
from rigging.errors import InvalidRequest

_METHOD: Final = "/iris.v1.ClientService/Session"
_CHUNK: Final = 256 * 1024
_IDLE_SECONDS: Final = 60.0
_TIMEVAL: Final = struct.Struct("ll")

Take = Callable[[], pb.ClientMessage | None]
"""Returns the next message to send; None for none at present."""


class SessionBroken(grpc.RpcError):
    """The stream ended, or did not answer in time, before a call was answered."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        """Return the code, as in `grpc.RpcError`."""
        return self._code

    def details(self) -> str:
        """Return the details, as in `grpc.RpcError`."""
        return self._details


class SessionStream(Protocol):
    """One stream to the controller. Thread-safe, except for its single reader."""

    def begin(self, take: Take, is_done: Callable[[], bool]) -> None:
        """Start sending messages.

        Args:
            take: Returns the next message.
            is_done: Polled by streams that are costly to keep open. True ends the stream.
        """
        ...

    def wake(self) -> None:
        """Notify the stream that there may be messages to send."""
        ...

    def news(self) -> Iterator[pb.ClientNews]:
        """Yield the controller's messages. Raise grpc.RpcError if the stream ends without `close`."""
        ...

    def close(self) -> None:
        """End the stream, from any thread."""
        ...


class GrpcStream:
    """A stream on a gRPC channel. A thread of gRPC sends."""

    def __init__(self, stub: ClientServiceStub, metadata: Metadata, idle_s: float = _IDLE_SECONDS) -> None:
        self._stub = stub
        self._metadata = metadata
        self._idle_s = idle_s
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._sleeps = False
        self._call: Iterator[pb.ClientNews] = iter(())

    def begin(self, take: Take, is_done: Callable[[], bool]) -> None:
        self._call = self._stub.Session(self._messages(take, is_done), metadata=self._metadata)

    def wake(self) -> None:
        if self._sleeps:
            self._sleeps = False
            self._wake.put(None)

    def news(self) -> Iterator[pb.ClientNews]:
        yield from self._call

    def close(self) -> None:
        self._wake.put(None)  # the channel ends the call; who sends sees that there is nothing more to do

    def _messages(self, take: Take, is_done: Callable[[], bool]) -> Iterator[pb.ClientMessage]:
        while True:
            self._sleeps = True  # before looking: what is put there afterwards wakes
            message = take()
            if message is not None:
                self._sleeps = False
                yield message
                continue
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=self._idle_s)
            if is_done():
                return


class SocketStream:
    """A stream on the controller's socket. The thread that calls `wake` sends."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._lock = threading.Lock()
        self._take: Take | None = None

    @classmethod
    def connect(cls, path: str, metadata: Metadata, timeout_s: float) -> "SocketStream":
        """Connect to the controller.

        Args:
            path: The socket's path.
            metadata: The metadata of the call.
            timeout_s: Timeout for the connection, and for sending a message.

        Raises:
            OSError: The controller does not listen on the socket.
        """
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(timeout_s)
            connected.connect(path)
            connected.settimeout(None)
            # Of sending alone: reading waits as long as it takes.
            seconds = _TIMEVAL.pack(int(timeout_s), int(timeout_s % 1 * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
            connected.sendall(Opening(_METHOD, metadata).to_frame())
        except BaseException:
            connected.close()
            raise
        return cls(connected)

    def begin(self, take: Take, is_done: Callable[[], bool]) -> None:
        del is_done  # it costs nothing
        self._take = take

    def wake(self) -> None:
        assert self._take is not None
        with self._lock:
            try:
                while (message := self._take()) is not None:
                    self._socket.sendall(frame(FrameKind.MESSAGE, message.SerializeToString()))
            except OSError:
                self.close()  # a part of a message may have gone: who reads tells all who wait
            except BaseException:  # Ctrl-C: the same, as what was taken may be of others, too
                self.close()
                raise

    def news(self) -> Iterator[pb.ClientNews]:
        try:
            yield from self._received()
        finally:
            with self._lock:  # nothing is sent meanwhile by a descriptor that may soon be another's
                self._socket.close()

    def _received(self) -> Iterator[pb.ClientNews]:
        frames = FrameReader(MAX_MESSAGE_BYTES)
        while True:
            try:
                data = self._socket.recv(_CHUNK)
            except OSError as error:
                raise SessionBroken(grpc.StatusCode.UNAVAILABLE, f"the session failed: {error}") from None
            if not data:
                raise SessionBroken(grpc.StatusCode.UNAVAILABLE, "the controller ended the session")
            try:
                received = [(kind, content) for kind, content in frames.feed(data)]
            except InvalidRequest as error:
                raise SessionBroken(grpc.StatusCode.UNAVAILABLE, f"the session failed: {error}") from None
            for kind, content in received:
                if kind is FrameKind.END:
                    raise SessionBroken(*read_end(content))
                yield _news_from(content)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _news_from(content: bytes) -> pb.ClientNews:
    try:
        return pb.ClientNews.FromString(content)
    except DecodeError:
        text = "the controller's message cannot be decoded: use the same release of iris on both sides"
        raise SessionBroken(grpc.StatusCode.UNAVAILABLE, text) from None


def open_stream(path: str, stub: ClientServiceStub, metadata: Metadata, timeout_s: float) -> SessionStream:
    """Open a stream to the controller.

    Args:
        path: The controller's Unix socket; gRPC is used if this is empty or the socket does not work.
        stub: The stub for gRPC.
        metadata: The metadata of the call.
        timeout_s: Timeout for the socket connection.
    """
    if path:
        with contextlib.suppress(OSError):
            return SocketStream.connect(path, metadata, timeout_s)
    return GrpcStream(stub, metadata)
