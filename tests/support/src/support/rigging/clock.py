"""Clocks for tests: a manual one, and a wrong one."""

import threading
import time
from dataclasses import dataclass


class FakeClock:
    """A manual `SleepingClock`. Sleeping advances it and is recorded in `sleeps`."""

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
        """Move the wall clock by `seconds`, like NTP or a person. Monotonic time does not change."""
        with self._guard:
            self._now += seconds


@dataclass(frozen=True, slots=True)
class SkewedClock:
    """The machine's clocks, with the wall clock off by `skew` seconds. It can be pickled."""

    skew: float

    def now(self) -> float:
        return time.time() + self.skew

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
