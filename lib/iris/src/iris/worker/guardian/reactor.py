"""A small single-threaded event loop over descriptors and timers, without asyncio."""

import heapq
import select
import time
from collections.abc import Callable
from typing import Final

_EVENTS_PER_TURN: Final = 64
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT


class Timer:
    """A call scheduled for a time of the monotonic clock."""

    __slots__ = ("_work", "due")

    def __init__(self, due: float, work: Callable[[], None]) -> None:
        self.due = due
        self._work: Callable[[], None] | None = work

    def __lt__(self, other: "Timer") -> bool:
        return self.due < other.due

    def cancel(self) -> None:
        self._work = None

    def run(self) -> None:
        if self._work is not None:
            self._work()


class Reactor:
    """Calls the handlers of descriptors and timers one after the other.

    A handler may be called spuriously (a descriptor's number can be reused within one turn), so handlers must not block
    and must accept that there is nothing to read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._timers: list[Timer] = []
        self._last: list[Callable[[], None]] = []

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        """Call `handler` whenever `descriptor` is readable or hung up; call `unwatch` before closing it."""
        self._epoll.register(descriptor, READ)
        self._handlers[descriptor] = handler

    def want(self, descriptor: int, events: int) -> None:
        """Set the events (READ, WRITE) to wait for on a watched descriptor."""
        self._epoll.modify(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """Stop calling the handler of `descriptor`; close the descriptor next. Unknown descriptors are ignored.

        The kernel stops watching it on close, because no other process has it: descriptors are closed on exec.
        """
        self._handlers.pop(descriptor, None)

    def call_later(self, seconds: float, work: Callable[[], None]) -> Timer:
        """Call `work` once after a delay in seconds."""
        timer = Timer(self._clock() + seconds, work)
        heapq.heappush(self._timers, timer)
        return timer

    def call_last(self, work: Callable[[], None]) -> None:
        """Call `work` once at the end of this turn, or of the next turn if called between turns."""
        self._last.append(work)

    def turn(self, longest_s: float | None = None) -> None:
        """Wait up to `longest_s` seconds for events, and handle all that are due."""
        if self._timers:
            until_timer = max(self._timers[0].due - self._clock(), 0.0)
            longest_s = until_timer if longest_s is None else min(longest_s, until_timer)
        for descriptor, _ in self._epoll.poll(longest_s, _EVENTS_PER_TURN):
            handler = self._handlers.get(descriptor)
            if handler is not None:
                handler()
        while self._timers and self._timers[0].due <= self._clock():
            heapq.heappop(self._timers).run()
        if self._last:
            works, self._last = self._last, []
            for work in works:
                work()

    def close(self) -> None:
        """Remove all handlers and timers."""
        self._handlers.clear()
        self._timers.clear()
        self._last.clear()
        self._epoll.close()
