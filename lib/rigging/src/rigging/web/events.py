"""Server-sent events. Each page receives every event once and in order, and catches up after a disconnect.

Each event has an id `EPOCH-NUMBER`. A reconnecting browser sends the last id it received. The server sends the missed
events. If it no longer has them (after a restart, a long gap, or on a slow page), it sends `reset`, and the page
reloads.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import StreamingResponse

from rigging.errors import MarinError

_log = logging.getLogger(__name__)

#: Seconds between signs of life; pages take a connection without any for 2.5 times as long for broken.
HEARTBEAT_SECONDS: Final = 10.0
_MOST_WAITING: Final = 256
_HISTORY: Final = 1024
_RETRY_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Event:
    """An event for pages.

    Attributes:
        id: `EPOCH-NUMBER`.
        name: The event's name, a word that pages listen for.
        data: The event's text.
    """

    id: str
    name: str
    data: str

    def encoded(self) -> bytes:
        """Return the event in wire format."""
        return encode_event(self.name, self.data, self.id)


def encode_event(name: str, data: str, id: str | None = None) -> bytes:
    """Return an event in wire format.

    Args:
        name: The event's name, without line breaks.
        data: The text. Each of its lines becomes a line of the event.
        id: The id that the browser sends when it reconnects; None keeps the previous one.
    """
    lines = [] if id is None else [f"id: {id}"]
    lines += [f"event: {name}", *(f"data: {line}" for line in _lines(data))]
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


def _lines(data: str) -> list[str]:
    return data.replace("\r\n", "\n").replace("\r", "\n").split("\n")


class _Listener:
    def __init__(self, wanted: Callable[[Event], bool], most: int) -> None:
        self.wanted = wanted
        self.waiting: deque[Event] = deque()
        self.most = most
        self.is_behind = False
        self.news = asyncio.Event()

    def offer(self, event: Event) -> None:
        if not self.wanted(event):
            return
        if len(self.waiting) >= self.most:
            self.waiting.clear()
            self.is_behind = True
        if not self.is_behind:
            self.waiting.append(event)
        self.news.set()


class Broadcaster:
    """Send events to all open pages. It belongs to one event loop, in which all methods are called.

    Args:
        history: Number of past events to keep for pages that reconnect.
        most_waiting: A page with more unread events receives `reset`.
        heartbeat: Seconds between keep-alives.
    """

    def __init__(
        self, *, history: int = _HISTORY, most_waiting: int = _MOST_WAITING, heartbeat: float = HEARTBEAT_SECONDS
    ) -> None:
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._history: deque[Event] = deque(maxlen=history)
        self._most_waiting = most_waiting
        self._heartbeat = heartbeat
        self._listeners: set[_Listener] = set()
        self._is_closed = False

    @property
    def listeners(self) -> int:
        """The number of open pages. At 0, callers can skip preparing events."""
        return len(self._listeners)

    def publish(self, name: str, data: str = "") -> None:
        """Publish an event.

        Args:
            name: The event's name.
            data: The event's text.
        """
        self._number += 1
        event = Event(f"{self._epoch}-{self._number}", name, data)
        self._history.append(event)
        for listener in self._listeners:
            listener.offer(event)

    def close(self) -> None:
        """End all streams, because the server stops."""
        self._is_closed = True
        for listener in self._listeners:
            listener.news.set()

    async def stream(
        self, last_id: str | None = None, wanted: Callable[[Event], bool] = lambda _: True
    ) -> AsyncIterator[bytes]:
        """Yield events in wire format for one page, until the server stops.

        Args:
            last_id: The last event that the page received; None for a new page.
            wanted: Decides whether the page listens for an event.
        """
        listener = _Listener(wanted, self._most_waiting)
        missed = self._missed(last_id)
        self._listeners.add(listener)
        try:
            yield f"retry: {_RETRY_MS}\n\n".encode() + encode_event("hello", str(self._heartbeat), self._last_id())
            if missed is None:
                yield self._reset()
            for event in missed or ():
                if wanted(event):
                    yield event.encoded()
            while not self._is_closed:
                if not listener.news.is_set():
                    try:
                        await asyncio.wait_for(listener.news.wait(), self._heartbeat)
                    except TimeoutError:
                        yield encode_event("alive", "")
                        continue
                listener.news.clear()
                if listener.is_behind:
                    listener.is_behind = False
                    yield self._reset()
                    continue
                pieces = [event.encoded() for event in listener.waiting]
                listener.waiting.clear()
                if pieces:
                    yield b"".join(pieces)
        finally:
            self._listeners.discard(listener)

    def _last_id(self) -> str:
        return f"{self._epoch}-{self._number}"

    def _reset(self) -> bytes:
        return encode_event("reset", "", self._last_id())

    def _missed(self, last_id: str | None) -> Iterable[Event] | None:
        """Return the events after `last_id`; None if some are no longer known."""
        if not last_id:
            return ()
        epoch, _, number = last_id.partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit() and len(number) < 18):
            return None
        first = self._number - len(self._history) + 1
        if not first - 1 <= int(number) <= self._number:
            return None
        return list(self._history)[int(number) - first + 1 :]


def last_event_id(request: Request) -> str | None:
    """Return the last event id that a page received, from the browser's header or the page's query."""
    return request.headers.get("last-event-id") or request.query_params.get("last_event_id")


def event_response(stream: AsyncIterator[bytes]) -> StreamingResponse:
    """Return a response that streams events. It ends when an expected error is raised."""
    return StreamingResponse(
        _until_error(stream),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _until_error(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for piece in stream:
            yield piece
    except (OSError, MarinError) as error:
        # What it tells of cannot be read now. The page sees its connection end, says so, and comes back.
        _log.warning("a stream of events ended: %s", error)
