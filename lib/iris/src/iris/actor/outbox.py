"""What waits to be sent on one connection: small frames share messages, large pickles take turns chunk by chunk."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar

from iris.actor.payload import Chunks
from iris.actor.prompt import Prompt
from iris.actor.wire import Message, Parcel

_MESSAGE_BYTES: Final = 256 * 1024

Item = TypeVar("Item")


class Frame(Protocol[Message]):
    """One thing to be said."""

    def fill(self, parcel: Parcel[Message]) -> int:
        """Put it into the parcel, as late as possible; return about how many bytes it takes."""
        ...


class Number:
    """One number in a list of the message."""

    __slots__ = ("_field", "_number")

    def __init__(self, field: str, number: int) -> None:
        self._field = field
        self._number = number

    def fill(self, parcel: Parcel[Message]) -> int:
        getattr(parcel.message, self._field).append(self._number)
        return 8


class Outbox(Generic[Message]):
    """Collects frames and writes them to the connection; belongs to the loop.

    The next message is made when the transport has taken the one before, so memory stays bounded by what the frames
    themselves hold.
    """

    def __init__(self, new_message: Callable[[], Message]) -> None:
        self._new_message: Callable[[], Message] = new_message
        self._frames: deque[Frame[Message]] = deque()
        self._streams: deque[tuple[Chunks, Callable[[], object] | None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._write: Callable[[Parcel[Message]], Coroutine[Any, Any, object]] | None = None
        self._writing: Prompt | None = None
        self._soon = False
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._drained = asyncio.Event()
        self._closed = False

    async def run(self, write: Callable[[Parcel[Message]], Coroutine[Any, Any, object]]) -> None:
        """Write what there is and what comes; return once closed and empty. Raises what `write` raises."""
        self._write = write
        self.flush()
        try:
            await self._over
        finally:
            self._write = None
            if self._writing is not None:
                self._writing.cancel()

    async def drained(self) -> None:
        """Return when the transport has taken all there is."""
        if self._frames or self._streams or self._writing is not None:
            self._drained.clear()
            await self._drained.wait()

    def put(self, frame: Frame[Message], hurry: bool = True) -> None:
        """Send the frame next; without `hurry` it waits for another one, or for `flush`."""
        self._frames.append(frame)
        if hurry:
            self._flush_soon()

    def stream(self, chunks: Chunks, on_sent: Callable[[], object] | None = None) -> None:
        """Send a pickle piece by piece, in turn with others; `on_sent` hears when the last piece is taken."""
        self._streams.append((chunks, on_sent))
        self._flush_soon()

    def drop_stream(self, call: int) -> None:
        """Send no more of a call's pickle."""
        if self._streams:
            self._streams = deque(entry for entry in self._streams if entry[0].call != call)

    def close(self) -> None:
        """Let `run` end after what is in here."""
        self._closed = True
        self._flush_soon()

    def flush(self) -> None:
        """Begin to write what is there, if nothing is being written; else its end will."""
        self._soon = False
        if self._write is None or self._writing is not None:
            return
        if self._frames or self._streams:
            self._writing = Prompt(self._write_next(self._write), self._written)
            self._writing.begin()
            return
        self._drained.set()
        if self._closed and not self._over.done():
            self._over.set_result(None)

    def _flush_soon(self) -> None:
        # What comes in the same round of the loop shares a message.
        if not self._soon and self._writing is None:
            self._soon = True
            self._loop.call_soon(self.flush)

    async def _write_next(self, write: Callable[[Parcel[Message]], Coroutine[Any, Any, object]]) -> None:
        await write(self._fill())

    def _written(self, error: BaseException | None) -> None:
        self._writing = None
        if error is None:
            self.flush()
        elif not self._over.done():
            self._over.set_exception(error)

    def _fill(self) -> Parcel[Message]:
        parcel: Parcel[Message] = Parcel(self._new_message())
        size = 0
        frames = self._frames
        while frames and size < _MESSAGE_BYTES:
            size += frames.popleft().fill(parcel)
        if self._streams and size < _MESSAGE_BYTES:
            chunks, on_sent = self._streams.popleft()
            parcel.message.chunks.add(call=chunks.call, attached=True)
            parcel.attach(chunks.next())
            if not chunks.done:
                self._streams.append((chunks, on_sent))
            elif on_sent is not None:
                on_sent()
        return parcel


class Handoff(Generic[Item]):
    """Brings items from any thread to the loop; those that come close together cause one wake-up.

    Args:
        take: Told of each item. after: Told of each when all that came together were taken.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[Item], object],
        after: Callable[[Item], object] | None = None,
    ) -> None:
        self._loop = loop
        self._take = take
        self._after = after
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
        taken: list[Item] = []
        while self._items:
            taken.append(self._items.popleft())
            self._take(taken[-1])
        if self._after is not None:
            for item in taken:
                self._after(item)
