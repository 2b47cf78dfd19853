"""A limit on what is under way at once, for what is begun and ended by the ten thousand a second."""

import threading

from iris.actor.transport.loop import refuse_in_loop


class CallLimiter:
    """`threading.Semaphore` at a third of its price while there is room. Thread-safe.

    Args:
        room: How many may be inside.
    """

    __slots__ = ("_freed", "_lock", "_room", "_waiting")

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting = 0
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)

    def enter(self) -> None:
        """Enter; wait while it is full. Raises Conflict in the actors' loop, which would wait for itself."""
        with self._lock:
            while not self._room:
                refuse_in_loop("this call waits until another one ends")
                self._waiting += 1
                try:
                    self._freed.wait()
                finally:
                    self._waiting -= 1
            self._room -= 1

    def leave(self) -> None:
        """Make room for one more."""
        with self._lock:
            self._room += 1
            if self._waiting:
                self._freed.notify()
