"""The queue of one connection: small frames share messages, large pickles are interleaved in chunks."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from iris.actor.transport.payload import Chunks
from iris.actor.transport.wire import Envelope, Message

_MESSAGE_BYTES: Final = 256 * 1024

Item = TypeVar("Item")


class Frame(Protocol[Message]):
    """A frame to send."""

    def fill(self, envelope: Envelope[Message]) -> int:
        """Write the frame into the envelope, as late as possible, and return its approximate size in bytes."""
        ...


class Number:
    """A frame that is a number in a list of the message."""

    __slots__ = ("_field", "_number")

    def __init__(self, field: str, number: int) -> None:
        self._field = field
        self._number = number

    def fill(self, envelope: Envelope[Message]) -> int:
        getattr(envelope.message, self._field).append(self._number)
        return 8


class FrameQueue(Generic[Message]):
    """Collects frames until the connection's writer takes them. Belongs to the event loop.

    The writer takes the next message when the transport has accepted the previous one, so memory is bounded by the
    frames themselves.
    """

    def __init__(self, new_message: Callable[[], Message]) -> None:
        self._new_message: Callable[[], Message] = new_message
        self._frames: deque[Frame[Message]] = deque()
        self._streams: deque[tuple[Chunks, Callable[[], object] | None]] = deque()
        self._writer: asyncio.Future[None] | None = None
        self._closed = False

    def put(self, frame: Frame[Message], hurry: bool = True) -> None:
        """Queue the frame. Without `hurry` it waits for another frame, or for `wake`."""
        self._frames.append(frame)
        if hurry:
            self.wake()

    def wake(self) -> None:
        """Send the queued frames."""
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    def stream(self, chunks: Chunks, on_sent: Callable[[], object] | None = None) -> None:
        """Send a pickle in pieces, interleaved with others. `on_sent` is called when the last piece is taken."""
        self._streams.append((chunks, on_sent))
        self.wake()

    def drop_stream(self, call: int) -> None:
        """Stop sending a call's pickle."""
        if self._streams:
            self._streams = deque(entry for entry in self._streams if entry[0].call != call)

    def close(self) -> None:
        """Let the writer end after the queued frames."""
        self._closed = True
        self.wake()

    async def next(self) -> Envelope[Message] | None:
        """Wait for frames and return the next envelope; None if closed and empty."""
        while True:
            if self._frames or self._streams:
                return self._fill()
            if self._closed:
                return None
            # Not an Event, of which every message would pay for the generality.
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def _fill(self) -> Envelope[Message]:
        envelope: Envelope[Message] = Envelope(self._new_message())
        size = 0
        frames = self._frames
        while frames and size < _MESSAGE_BYTES:
            size += frames.popleft().fill(envelope)
        if self._streams and size < _MESSAGE_BYTES:
            chunks, on_sent = self._streams.popleft()
            envelope.message.chunks.add(call=chunks.call)
            envelope.attach(chunks.next())
            if not chunks.done:
                self._streams.append((chunks, on_sent))
            elif on_sent is not None:
                on_sent()
        return envelope


class Handoff(Generic[Item]):
    """Passes items from any thread to the event loop, with one wake-up for items close together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[Item], object]) -> None:
        self._loop = loop
        self._take = take
        self._items: deque[Item] = deque()
        self._woken = False
        self._lock = threading.Lock()

    def put(self, item: Item) -> None:
        self._items.append(item)
        with self._lock:
            if self._woken:
                return
            self._woken = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        with self._lock:
            self._woken = False
        while self._items:
            self._take(self._items.popleft())
