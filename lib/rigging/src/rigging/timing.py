"""Durations, deadlines, rates and retries.

Times are whole milliseconds where they are stored or sent (`Duration`, `Timestamp`), seconds where a person writes
them. Waiting and deadlines use the monotonic clock, so that setting the machine's clock neither ends nor prolongs them.
"""

import contextlib
import dataclasses
import datetime
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from rigging.clock import SYSTEM_CLOCK, Clock, SleepingClock
from rigging.errors import DeadlineExceeded, InvalidRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")
_LAST_MS = 253_402_300_799_999  # end of the year 9999, the last that datetime can show


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time in milliseconds; may be negative."""

    milliseconds: int

    @classmethod
    def from_ms(cls, milliseconds: float) -> "Duration":
        return cls(round(milliseconds))

    @classmethod
    def from_seconds(cls, seconds: float) -> "Duration":
        return cls(round(seconds * 1000))

    @classmethod
    def from_minutes(cls, minutes: float) -> "Duration":
        return cls.from_seconds(minutes * 60)

    @classmethod
    def from_hours(cls, hours: float) -> "Duration":
        return cls.from_seconds(hours * 3600)

    @classmethod
    def from_timedelta(cls, delta: datetime.timedelta) -> "Duration":
        return cls.from_seconds(delta.total_seconds())

    def to_ms(self) -> int:
        return self.milliseconds

    def to_seconds(self) -> float:
        return self.milliseconds / 1000

    def to_timedelta(self) -> datetime.timedelta:
        return datetime.timedelta(milliseconds=self.milliseconds)

    def add(self, other: "Duration") -> "Duration":
        return self + other

    def __add__(self, other: "Duration") -> "Duration":
        return Duration(self.milliseconds + other.milliseconds)

    def __mul__(self, factor: float) -> "Duration":
        """Return the duration times `factor`; parts of a millisecond are dropped."""
        return Duration(int(self.milliseconds * factor))

    __rmul__ = __mul__


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment, in milliseconds since the Unix epoch."""

    milliseconds: int

    @classmethod
    def now(cls, clock: Clock = SYSTEM_CLOCK) -> "Timestamp":
        return cls.from_seconds(clock.now())

    @classmethod
    def from_ms(cls, milliseconds: float) -> "Timestamp":
        return cls(round(milliseconds))

    @classmethod
    def from_seconds(cls, seconds: float) -> "Timestamp":
        return cls(round(seconds * 1000))

    @classmethod
    def from_datetime(cls, moment: datetime.datetime) -> "Timestamp":
        """Convert a datetime with a time zone; one without is refused, as it could mean any moment of a day."""
        if moment.tzinfo is None:
            raise InvalidRequest(f"{moment.isoformat()} has no time zone; use e.g. datetime.now(timezone.utc)")
        return cls.from_seconds(moment.timestamp())

    def to_ms(self) -> int:
        return self.milliseconds

    def to_seconds(self) -> float:
        return self.milliseconds / 1000

    epoch_ms = to_ms
    epoch_seconds = to_seconds

    def age_ms(self, clock: Clock = SYSTEM_CLOCK) -> int:
        """Return the milliseconds that have passed since; negative for a moment to come."""
        return Timestamp.now(clock).milliseconds - self.milliseconds

    def as_formatted_date(self) -> str:
        """Return the moment in ISO 8601, in UTC: "2024-01-31T12:00:00.123000+00:00"."""
        return self.to_datetime().isoformat()

    def as_short_time(self) -> str:
        """Return the time of day in UTC: "12:00:00"."""
        return self.to_datetime().strftime("%H:%M:%S")

    def to_datetime(self) -> datetime.datetime:
        """Return the moment in UTC."""
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return epoch + datetime.timedelta(milliseconds=self.milliseconds)

    def add(self, duration: Duration) -> "Timestamp":
        return self.add_ms(duration.milliseconds)

    def add_ms(self, milliseconds: int) -> "Timestamp":
        return Timestamp(self.milliseconds + milliseconds)

    def before(self, other: "Timestamp") -> bool:
        return self < other

    def after(self, other: "Timestamp") -> bool:
        return self > other


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which something must be done; make one with `from_seconds`, `from_ms`, `from_now` or `after`."""

    _at: Timestamp
    _monotonic_end: float
    _clock: Clock = field(default=SYSTEM_CLOCK, repr=False, compare=False)

    @classmethod
    def from_seconds(cls, seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> "Deadline":
        """Return the deadline `seconds` from now; `math.inf` is never."""
        if math.isnan(seconds):
            raise InvalidRequest("a deadline cannot be NaN seconds from now")
        # Seconds since the epoch stay far below this, so the sum is a date that can be shown.
        at_ms = min((clock.now() + seconds) * 1000, _LAST_MS) if seconds < math.inf else _LAST_MS
        return cls(Timestamp.from_ms(max(at_ms, 0)), clock.monotonic() + seconds, clock)

    @classmethod
    def from_ms(cls, milliseconds: float, *, clock: Clock = SYSTEM_CLOCK) -> "Deadline":
        return cls.from_seconds(milliseconds / 1000, clock=clock)

    @classmethod
    def from_now(cls, duration: Duration, *, clock: Clock = SYSTEM_CLOCK) -> "Deadline":
        return cls.from_seconds(duration.to_seconds(), clock=clock)

    @classmethod
    def after(cls, start: Timestamp, duration: Duration, *, clock: Clock = SYSTEM_CLOCK) -> "Deadline":
        """Return the deadline `duration` after `start`, which may lie in the past."""
        at = start.add(duration)
        return cls(at, clock.monotonic() + at.to_seconds() - clock.now(), clock)

    def expired(self, now: Timestamp | None = None) -> bool:
        """Say whether it has come, by `now` if given, else by this machine's monotonic clock."""
        return self.remaining_seconds() <= 0 if now is None else now >= self._at

    def remaining_seconds(self, now: Timestamp | None = None) -> float:
        """Return the seconds left, by `now` if given, never below 0."""
        if now is not None:
            return max(0, self._at.milliseconds - now.milliseconds) / 1000
        return max(0.0, self._monotonic_end - self._clock.monotonic())

    def remaining_ms(self, now: Timestamp | None = None) -> int:
        """Return the milliseconds left, by `now` if given, never below 0; rounded up, so that 0 means expired."""
        if now is not None:
            return max(0, self._at.milliseconds - now.milliseconds)
        return min(_LAST_MS, math.ceil(min(self.remaining_seconds(), float(_LAST_MS)) * 1000))

    def raise_if_expired(self, message: str = "deadline exceeded", now: Timestamp | None = None) -> None:
        """Raise DeadlineExceeded (a TimeoutError) with `message` when it has come, by `now` if given."""
        if self.expired(now):
            raise DeadlineExceeded(message)

    def as_timestamp(self) -> Timestamp:
        """Return the moment by the wall clock, as it was when the deadline was set."""
        return self._at


class Timer:
    """Measures the time since it was made or last reset."""

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


class RateLimiter:
    """Lets something run at most once every `interval_seconds`; the first time at once.

    `now`, where a method takes it, is in seconds of a clock of the caller's own instead of the monotonic one.
    """

    def __init__(self, interval_seconds: float, *, clock: SleepingClock = SYSTEM_CLOCK) -> None:
        if not interval_seconds >= 0:
            raise InvalidRequest(f"interval_seconds={interval_seconds}: must be at least 0")
        self._interval = interval_seconds
        self._clock = clock
        self._last = -math.inf
        self._guard = threading.Lock()

    def should_run(self, now: float | None = None) -> bool:
        """Say whether it may run now, and if so count this as a run."""
        with self._guard:
            now = self._now(now)
            if now - self._last < self._interval:
                return False
            self._last = now
            return True

    def mark_run(self, now: float | None = None) -> None:
        """Count a run now, e.g. at the end of a long one, so that the interval starts there."""
        with self._guard:
            self._last = self._now(now)

    def time_until_next(self, now: float | None = None) -> float:
        """Return the seconds until it may run, 0 when it may now."""
        with self._guard:
            return max(0.0, self._last + self._interval - self._now(now))

    def wait(self, cancel: threading.Event | None = None) -> bool:
        """Wait until it may run, and count this as a run.

        Args:
            cancel: Ends the wait when it is set.

        Returns:
            True when it may run; False when `cancel` ended the wait, which then counts no run.
        """
        while not self.should_run():
            if cancel is None:
                self._clock.sleep(self.time_until_next())
            elif cancel.wait(self.time_until_next()):
                return False
        return True

    def reset(self) -> None:
        """Forget earlier runs: it may run now."""
        with self._guard:
            self._last = -math.inf

    def _now(self, given: float | None) -> float:
        return self._clock.monotonic() if given is None else given


class TokenBucket:
    """Allows bursts of `capacity` and, in the long run, `capacity` per `refill_period`; starts full.

    Args:
        capacity: Most tokens there can be.
        refill_period: Time in which an empty bucket becomes full: a Duration, or seconds.
        clock: Used when no `now` is passed.
    """

    def __init__(self, capacity: int, refill_period: Duration | float, *, clock: Clock = SYSTEM_CLOCK) -> None:
        period_ms = _seconds(refill_period) * 1000
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
        """Take `n` tokens if there are as many; otherwise take none. A caller that passes `now` must always do so."""
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
        """Whole tokens there are now, or at the `now` last passed."""
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


class _SharedRandom(random.SystemRandom):
    """Randomness without state, so that all can share it, forks too: seeding one's own takes longer than all else."""

    def __reduce__(self) -> str:
        return "_RANDOM"


_RANDOM = _SharedRandom()


@dataclass(slots=True)
class ExponentialBackoff:
    """Growing pauses between attempts.

    Args:
        initial: First pause, seconds.
        maximum: Longest pause, seconds, jitter included.
        factor: By how much each pause is longer than the one before.
        jitter: Each pause is varied by up to this share of itself, so that clients do not march in step.
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
        """Return the next pause in seconds, and lengthen the one after it."""
        interval = self._next
        self._next = min(self.maximum, interval * self.factor)
        return min(self.maximum, interval * (1 + self.source.uniform(-self.jitter, self.jitter)))

    def reset(self) -> None:
        """Start again with the initial pause."""
        self._next = self.initial

    def copy(self) -> "ExponentialBackoff":
        """Return a fresh one with the same settings."""
        return dataclasses.replace(self)

    def wait_until(self, condition: Callable[[], bool], timeout: Duration | float) -> bool:
        """Call `condition` with growing pauses until it is true or `timeout` (seconds or Duration) is over.

        It is called at least once, and once more when the time is over. Returns its last answer.
        """
        deadline = Deadline.from_seconds(_seconds(timeout), clock=self.clock)
        while not condition():
            left = deadline.remaining_seconds()
            if left <= 0:
                return False
            self.clock.sleep(min(self.next_interval(), left))
        return True

    def wait_until_or_raise(
        self, condition: Callable[[], bool], timeout: Duration | float, message: str = "condition not met"
    ) -> None:
        """Wait as `wait_until` does.

        Args:
            condition: Called again and again.
            timeout: The most to wait, in seconds if it is a number.
            message: What was waited for, for the error.

        Raises:
            DeadlineExceeded: The time is over; also a TimeoutError.
        """
        if not self.wait_until(condition, timeout):
            raise DeadlineExceeded(f"{message} (waited {_seconds(timeout):g} s)")


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
    """Call `fn` until it succeeds; raise its error when that is not retryable or time is up.

    Args:
        fn: What to do.
        retryable: Says of an error whether trying again may help; an exception class means its instances. By default
            every error is retried.
        max_attempts: Most calls of `fn`.
        min_attempts: So many calls are made even when `max_elapsed` is over: time alone may mean that all stood still.
        max_elapsed: Give up rather than start an attempt later than this (seconds or Duration) after the first.
        backoff: Pauses; it is copied, and its clock is used. By default from 0.5 s, doubled up to 10 s.
        on_retry: Called before each pause with the error and the number of the attempt that failed, from 0.
        operation: Name of `fn` for the log.
    """
    if max_attempts < 1:
        raise InvalidRequest(f"max_attempts={max_attempts}: must be at least 1")
    pauses = (backoff or ExponentialBackoff(initial=0.5, maximum=10.0, factor=2.0)).copy()
    deadline = Deadline.from_seconds(math.inf if max_elapsed is None else _seconds(max_elapsed), clock=pauses.clock)
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


@contextlib.contextmanager
def log_time(label: str, level: int = logging.INFO) -> Iterator[None]:
    """Log how long the block took, also when it raises."""
    started = time.perf_counter()
    outcome = "failed after"
    try:
        yield
        outcome = "took"
    finally:
        logger.log(level, "%s %s %.3f s", label, outcome, time.perf_counter() - started)


def _seconds(time_span: Duration | float) -> float:
    return time_span.to_seconds() if isinstance(time_span, Duration) else float(time_span)
