"""A loop of one thread: descriptors that became readable or writable, and timers; small, so without asyncio."""

import heapq
import select
import time
from collections.abc import Callable
from typing import Final

_EVENTS_PER_TURN: Final = 64
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT


class Timer:
    """A call that is due at a moment of the monotonic clock."""

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
    """Calls handlers of descriptors and timers, one after the other.

    A handler may be called without cause (a descriptor's number can be reused within one turn), so handlers must not
    block and must take "nothing there" for an answer.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._timers: list[Timer] = []
        self._last: list[Callable[[], None]] = []

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        """Call `handler` whenever `descriptor` is readable or hung up; `unwatch` it before it is closed."""
        self._epoll.register(descriptor, READ)
        self._handlers[descriptor] = handler

    def want(self, descriptor: int, events: int) -> None:
        """Wait for these events (READ, WRITE) of a watched descriptor from now on."""
        self._epoll.modify(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """Stop calling the handler of `descriptor`, which is to be closed now; unknown descriptors are ignored.

        The kernel forgets it with the close, because no other process has it: they are closed when a program begins.
        """
        self._handlers.pop(descriptor, None)

    def call_later(self, seconds: float, work: Callable[[], None]) -> Timer:
        """Call `work` once, after so many seconds."""
        timer = Timer(self._clock() + seconds, work)
        heapq.heappush(self._timers, timer)
        return timer

    def call_last(self, work: Callable[[], None]) -> None:
        """Call `work` once, when all else of this turn is done; between turns: of the next, whenever that is."""
        self._last.append(work)

    def turn(self, longest_s: float | None = None) -> None:
        """Wait for something to do, at most `longest_s` seconds, and do all that is due by then."""
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
        """Forget everything."""
        self._handlers.clear()
        self._timers.clear()
        self._last.clear()
        self._epoll.close()
