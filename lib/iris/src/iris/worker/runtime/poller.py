"""Many file descriptors, one epoll, one entry in the asyncio loop."""

import asyncio
import select
from collections.abc import Callable

_EVENTS_PER_WAKE = 256


class Poller:
    """Calls a handler whenever its descriptor is readable or hung up, on the loop's thread.

    An attempt brings three descriptors and may live for a millisecond only; registering each with asyncio would cost
    more than the attempt. A handler may be called without cause (a descriptor number can be reused within one wake),
    so handlers must not block and must take "nothing there" for an answer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        """Start calling `handler` for `descriptor`; end it with `unwatch` before the descriptor is closed."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._handlers[descriptor] = handler

    def unwatch(self, descriptor: int) -> None:
        """Stop calling the handler of `descriptor`; unknown descriptors are ignored."""
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Stop watching everything."""
        self._loop.remove_reader(self._epoll.fileno())
        self._handlers.clear()
        self._epoll.close()

    def _dispatch(self) -> None:
        for descriptor, _ in self._epoll.poll(0, _EVENTS_PER_WAKE):
            handler = self._handlers.get(descriptor)
            if handler is not None:
                handler()
