"""Clocks as arguments: callers pass one in, so that logic never reads a global clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock and a monotonic clock, both in seconds."""

    def now(self) -> float:
        """Return seconds since the Unix epoch. The value jumps when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. The value never decreases and means nothing on another machine."""
        ...


class SleepingClock(Clock, Protocol):
    """A clock that can also sleep."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock's time have passed."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def unix_ms() -> int:
    """Return the machine's time in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000
