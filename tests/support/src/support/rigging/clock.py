"""Clocks for tests: one that moves only when a test moves it, and one that is wrong."""

import threading
import time
from dataclasses import dataclass


class FakeClock:
    """A `SleepingClock` under the test's control; sleeping advances it and is recorded in `sleeps`."""

    def __init__(self, now: float = 1_700_000_000.0, monotonic: float = 1_000.0) -> None:
        self.sleeps: list[float] = []
        self._now = now
        self._monotonic = monotonic
        self._guard = threading.Lock()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let `seconds` (not negative) pass on both clocks."""
        if seconds < 0:
            raise ValueError(f"time cannot go back: advance({seconds})")
        with self._guard:
            self._now += seconds
            self._monotonic += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back by `seconds`, as NTP or a person does; monotonic time is untouched."""
        with self._guard:
            self._now += seconds


@dataclass(frozen=True, slots=True)
class SkewedClock:
    """The machine's clocks, the wall clock off by `skew` seconds; may be sent to another process."""

    skew: float

    def now(self) -> float:
        return time.time() + self.skew

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
