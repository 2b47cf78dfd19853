"""Rate limits."""

import math
import threading

from rigging.clock import SYSTEM_CLOCK, Clock, SleepingClock
from rigging.errors import InvalidRequest
from rigging.timing.moments import Duration, Timestamp, seconds_of


class RateLimiter:
    """Allow an action at most once every `interval_seconds`. The first time is immediate.

    `now` arguments are seconds of the caller's clock, used instead of the monotonic one.
    """

    def __init__(self, interval_seconds: float, *, clock: SleepingClock = SYSTEM_CLOCK) -> None:
        if not interval_seconds >= 0:
            raise InvalidRequest(f"interval_seconds={interval_seconds}: must be at least 0")
        self._interval = interval_seconds
        self._clock = clock
        self._last = -math.inf
        self._guard = threading.Lock()

    def should_run(self, now: float | None = None) -> bool:
        """Return whether the action may run now. If it may, count a run."""
        with self._guard:
            now = self._now(now)
            if now - self._last < self._interval:
                return False
            self._last = now
            return True

    def mark_run(self, now: float | None = None) -> None:
        """Count a run now, e.g. at the end of a long one, so that the interval starts here."""
        with self._guard:
            self._last = self._now(now)

    def time_until_next(self, now: float | None = None) -> float:
        """Return the seconds until the action may run; 0 if it may now."""
        with self._guard:
            return max(0.0, self._last + self._interval - self._now(now))

    def wait(self, cancel: threading.Event | None = None) -> bool:
        """Wait until the action may run, and count it as a run.

        Args:
            cancel: Ends the wait when set.

        Returns:
            True if it may run. False if `cancel` ended the wait; then no run is counted.
        """
        while not self.should_run():
            if cancel is None:
                self._clock.sleep(self.time_until_next())
            elif cancel.wait(self.time_until_next()):
                return False
        return True

    def reset(self) -> None:
        """Forget earlier runs: the action may run now."""
        with self._guard:
            self._last = -math.inf

    def _now(self, given: float | None) -> float:
        return self._clock.monotonic() if given is None else given


class TokenBucket:
    """Allow bursts of `capacity`, and in the long run `capacity` per `refill_period`. Starts full.

    Args:
        capacity: Maximum number of tokens.
        refill_period: Time in which an empty bucket refills: a Duration, or seconds.
        clock: Used when no `now` is passed.
    """

    def __init__(self, capacity: int, refill_period: Duration | float, *, clock: Clock = SYSTEM_CLOCK) -> None:
        period_ms = seconds_of(refill_period) * 1000
        if capacity < 1 or not period_ms > 0:
            raise InvalidRequest(
                f"capacity={capacity}, refill_period={refill_period}: needs capacity >= 1 and a period above 0"
            )
        self._capacity = capacity
        self._period_ms = period_ms
        self._clock = clock
        self._tokens = float(capacity)
        self._filled_at_ms: float | None = None
        self._given_now: Timestamp | None = None
        self._guard = threading.Lock()

    def try_acquire(self, n: int = 1, now: Timestamp | None = None) -> bool:
        """Take `n` tokens if there are enough; otherwise take none. Pass `now` in every call or in none."""
        with self._guard:
            self._given_now = now
            self._refill()
            # Refilling by fractions may fall short of a whole token by a rounding error.
            if self._tokens + 1e-9 < n:
                return False
            self._tokens -= n
            return True

    @property
    def available(self) -> int:
        """The number of whole tokens now, or at the last `now` passed."""
        with self._guard:
            self._refill()
            return int(self._tokens + 1e-9)

    def _refill(self) -> None:
        given = self._given_now
        now_ms = float(given.to_ms()) if given is not None else self._clock.monotonic() * 1000
        if self._filled_at_ms is not None and now_ms > self._filled_at_ms:
            gained = (now_ms - self._filled_at_ms) * self._capacity / self._period_ms
            self._tokens = min(float(self._capacity), self._tokens + gained)
        self._filled_at_ms = now_ms
