"""Measure elapsed time."""

import contextlib
import logging
import time
from collections.abc import Iterator

from rigging.clock import SYSTEM_CLOCK, Clock
from rigging.timing.moments import Duration

logger = logging.getLogger(__name__)


class Timer:
    """Measure the time since creation or the last reset."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._started = clock.monotonic()

    def elapsed_seconds(self) -> float:
        return self._clock.monotonic() - self._started

    def elapsed_ms(self) -> int:
        return round(self.elapsed_seconds() * 1000)

    def elapsed(self) -> Duration:
        return Duration.from_seconds(self.elapsed_seconds())

    def reset(self) -> None:
        self._started = self._clock.monotonic()


@contextlib.contextmanager
def log_time(label: str, level: int = logging.INFO) -> Iterator[None]:
    """Log how long the block took, even if it raises."""
    started = time.perf_counter()
    outcome = "failed after"
    try:
        yield
        outcome = "took"
    finally:
        logger.log(level, "%s %s %.3f s", label, outcome, time.perf_counter() - started)
