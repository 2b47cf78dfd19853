"""Time as an argument: the clock that edges pass in, so that logic never reads a global one."""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, both kinds in seconds."""

    def now(self) -> float:
        """Return seconds since the Unix epoch; may step when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back and means nothing on another machine."""
        ...


class SleepingClock(Clock, Protocol):
    """A clock that can also let time pass."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock's time."""
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
    """The machine's time in milliseconds since the Unix epoch, as records have it."""
    return time.time_ns() // 1_000_000
