"""A client's session with its controller: one stream of a gRPC channel."""

import contextlib
import queue
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import grpc

from iris.rpc import iris_pb2 as pb
from iris.rpc.iris_pb2_grpc import ClientServiceStub

_IDLE_SECONDS: Final = 60.0

Metadata = tuple[tuple[str, str], ...]

Take = Callable[[], pb.ClientMessage | None]
"""The next message to be sent; None: nothing at present."""


class SessionBroken(grpc.RpcError):
    """The stream ended, or gave no answer in time, before a call was answered."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        """As a call's own error has it."""
        return self._code

    def details(self) -> str:
        """As a call's own error has it."""
        return self._details


class SessionStream(Protocol):
    """One stream to the controller. Thread-safe, but for the one who reads."""

    def begin(self, take: Take, is_done: Callable[[], bool]) -> None:
        """Send messages from now on.

        Args:
            take: Returns the next message.
            is_done: Asked now and then by a stream that costs something while it is open; True: it is to end.
        """
        ...

    def wake(self) -> None:
        """There may be something to take and send."""
        ...

    def news(self) -> Iterator[pb.ClientNews]:
        """Yield the controller's messages. Raises grpc.RpcError when the stream ends otherwise than by `close`."""
        ...

    def close(self) -> None:
        """End it, from any thread."""
        ...


class GrpcStream:
    """A stream of a gRPC channel: a thread of gRPC's takes and sends."""

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
