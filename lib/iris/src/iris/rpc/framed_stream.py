"""Either end of a stream of frames in an event loop: what arrives is kept in order, and no more of it than is read."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from iris.rpc.frames import FrameKind, FrameReader
from rigging.errors import MarinError, Unavailable

_UNREAD_FRAMES: Final = 16
"""With so many messages waiting to be read, no more are taken from the socket."""


class Incoming:
    """The messages of a stream in order, decoded as they are taken; it ends when there are no more."""

    def __init__(self, on_taken: Callable[[], None]) -> None:
        self.decode: Callable[[bytes], Any] = bytes
        self._on_taken = on_taken
        self._frames: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, data: bytes) -> None:
        """One more message has come."""
        self._frames.append(data)
        self._wake()

    def close(self) -> None:
        """No more will come."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> "Incoming":
        return self

    async def __anext__(self) -> Any:
        while not self._frames:
            if self._over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._frames.popleft()
        self._on_taken()
        return self.decode(data)


class FramedStream(asyncio.Protocol, ABC):
    """Either end of a stream.

    Args:
        most: Bytes that a frame of the other side may have.
    """

    def __init__(self, most: int) -> None:
        self.frames = FrameReader(most)
        self.incoming = Incoming(self._on_taken)
        self._transport: asyncio.Transport | None = None
        self._drained = asyncio.Event()
        self._drained.set()
        self._paused = False
        self._said_all = False

    @abstractmethod
    def take(self, kind: FrameKind, content: bytes) -> None:
        """A frame has come. Raises MarinError for one that may not come now."""

    @abstractmethod
    def refuse(self, error: MarinError) -> None:
        """End the stream: the received bytes are no frame."""

    def put(self, content: bytes) -> None:
        """Keep a message until it is read."""
        self.incoming.put(content)
        if len(self.incoming) >= _UNREAD_FRAMES and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _on_taken(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    async def write(self, data: bytes) -> None:
        """Send frames, once there is room for more. Raises Unavailable when the other side has gone."""
        if self._transport is None or self._transport.is_closing() or self._said_all:
            raise Unavailable("the connection is closed")
        self._transport.write(data)
        if not self._drained.is_set():
            await self._drained.wait()

    def write_last(self, data: bytes) -> None:
        """Send this, and close."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            self._transport.close()

    def close_half(self) -> None:
        """Say that nothing more will be sent; what is still said is heard."""
        if self._transport is not None and not self._transport.is_closing():
            self._said_all = True
            self._transport.write_eof()

    def close(self) -> None:
        """Send what was written, and no more."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for kind, content in self.frames.feed(data):
                self.take(kind, content)
        except MarinError as error:
            self.refuse(error)

    def eof_received(self) -> bool:
        self.incoming.close()
        return True  # what the other side still wants to hear is sent

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._drained.set()
        self.incoming.close()

    def pause_writing(self) -> None:
        self._drained.clear()

    def resume_writing(self) -> None:
        self._drained.set()
