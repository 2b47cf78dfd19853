"""Retries with growing delays."""

import dataclasses
import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from rigging.clock import SYSTEM_CLOCK, SleepingClock
from rigging.errors import DeadlineExceeded, InvalidRequest
from rigging.timing.moments import Deadline, Duration, seconds_of

logger = logging.getLogger(__name__)

T = TypeVar("T")


class _SharedRandom(random.SystemRandom):
    """A stateless random source that everyone can share, including forks. Seeding a separate one would dominate the
    cost.
    """

    def __reduce__(self) -> str:
        return "_RANDOM"


_RANDOM = _SharedRandom()


@dataclass(slots=True)
class ExponentialBackoff:
    """Growing delays between attempts.

    Args:
        initial: First delay in seconds.
        maximum: Longest delay in seconds, including jitter.
        factor: The growth of each delay over the one before.
        jitter: The share by which each delay varies at random, so that clients do not retry in step.
    """

    initial: float = 0.05
    maximum: float = 1.0
    factor: float = 1.5
    jitter: float = 0.1
    clock: SleepingClock = field(default=SYSTEM_CLOCK, repr=False, compare=False)
    source: random.Random = field(default=_RANDOM, repr=False, compare=False)
    _next: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (0 < self.initial <= self.maximum and self.factor >= 1 and 0 <= self.jitter < 1):
            raise InvalidRequest(f"{self}: needs 0 < initial <= maximum, factor >= 1, 0 <= jitter < 1")
        self._next = self.initial

    def next_interval(self) -> float:
        """Return the next delay in seconds, and increase the one after it."""
        interval = self._next
        self._next = min(self.maximum, interval * self.factor)
        return min(self.maximum, interval * (1 + self.source.uniform(-self.jitter, self.jitter)))

    def reset(self) -> None:
        """Start again with the initial delay."""
        self._next = self.initial

    def copy(self) -> "ExponentialBackoff":
        """Return a new backoff with the same settings."""
        return dataclasses.replace(self)

    def wait_until(self, condition: Callable[[], bool], timeout: Duration | float) -> bool:
        """Call `condition` with growing delays until it is true or `timeout` (seconds or Duration) has passed.

        Return its last answer. It is called at least once, and once more at the timeout.
        """
        deadline = Deadline.from_seconds(seconds_of(timeout), clock=self.clock)
        while not condition():
            left = deadline.remaining_seconds()
            if left <= 0:
                return False
            self.clock.sleep(min(self.next_interval(), left))
        return True

    def wait_until_or_raise(
        self, condition: Callable[[], bool], timeout: Duration | float, message: str = "condition not met"
    ) -> None:
        """Wait like `wait_until`, and raise at the timeout.

        Args:
            condition: Called repeatedly.
            timeout: Maximum wait; seconds if it is a number.
            message: The awaited condition, for the error.

        Raises:
            DeadlineExceeded: The timeout has passed. Also a TimeoutError.
        """
        if not self.wait_until(condition, timeout):
            raise DeadlineExceeded(f"{message} (waited {seconds_of(timeout):g} s)")


RETRY_PAUSES: Final = ExponentialBackoff(initial=0.5, maximum=10.0, factor=2.0)
"""The default pauses of `retry_with_backoff`."""


def retry_with_backoff(
    fn: Callable[[], T],
    *,
    retryable: Callable[[Exception], bool] | type[Exception] = Exception,
    max_attempts: int = 10,
    min_attempts: int = 1,
    max_elapsed: Duration | float | None = None,
    backoff: ExponentialBackoff | None = None,
    on_retry: Callable[[Exception, int], object] | None = None,
    operation: str = "",
) -> T:
    """Call `fn` until it succeeds. Raise its error if that is not retryable, or the limits are reached.

    Args:
        fn: The function to call.
        retryable: Decides whether an error is worth a retry. An exception class means its instances. By default every
            error is retried.
        max_attempts: Maximum number of calls.
        min_attempts: Minimum number of calls, even after `max_elapsed`: the machine may have been suspended meanwhile.
        max_elapsed: Do not start an attempt later than this (seconds or Duration) after the first.
        backoff: The delays. It is copied, and its clock is used. Defaults to `RETRY_PAUSES`: from 0.5 s, doubling up to
            10 s.
        on_retry: Called before each delay with the error and the number of the failed attempt, from 0.
        operation: The name of `fn` in the log.
    """
    if max_attempts < 1:
        raise InvalidRequest(f"max_attempts={max_attempts}: must be at least 1")
    pauses = (backoff or RETRY_PAUSES).copy()
    deadline = Deadline.from_seconds(math.inf if max_elapsed is None else seconds_of(max_elapsed), clock=pauses.clock)
    attempt = 0
    while True:
        attempt += 1
        try:
            return fn()
        except Exception as error:
            again = isinstance(error, retryable) if isinstance(retryable, type) else retryable(error)
            pause = pauses.next_interval()
            is_late = attempt >= min_attempts and pause >= deadline.remaining_seconds()
            if not again or attempt >= max_attempts or is_late:
                raise
            name = operation or getattr(fn, "__qualname__", repr(fn))
            logger.info("%s: attempt %d of %d failed, next in %.2f s: %r", name, attempt, max_attempts, pause, error)
            if on_retry is not None:
                on_retry(error, attempt - 1)
        pauses.clock.sleep(pause)
