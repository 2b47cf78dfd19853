"""Durations, timestamps and deadlines."""

import datetime
import math
from dataclasses import dataclass, field

from rigging.clock import SYSTEM_CLOCK, Clock
from rigging.errors import DeadlineExceeded, InvalidRequest

_LAST_MS = 253_402_300_799_999  # end of the year 9999, the last that datetime can show


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A duration in milliseconds; may be negative."""

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
        """Return the duration times `factor`, truncated to milliseconds."""
        return Duration(int(self.milliseconds * factor))

    __rmul__ = __mul__


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time, in milliseconds since the Unix epoch."""

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
        """Convert a datetime. A datetime without a time zone is refused as ambiguous."""
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
        """Return the age in milliseconds; negative for the future."""
        return Timestamp.now(clock).milliseconds - self.milliseconds

    def as_formatted_date(self) -> str:
        """Return the time in ISO 8601, in UTC: "2024-01-31T12:00:00.123000+00:00"."""
        return self.to_datetime().isoformat()

    def as_short_time(self) -> str:
        """Return the time of day in UTC: "12:00:00"."""
        return self.to_datetime().strftime("%H:%M:%S")

    def to_datetime(self) -> datetime.datetime:
        """Return the time as a datetime in UTC."""
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
    """A time limit. Create one with `from_seconds`, `from_ms`, `from_now` or `after`."""

    _at: Timestamp
    _monotonic_end: float
    _clock: Clock = field(default=SYSTEM_CLOCK, repr=False, compare=False)

    @classmethod
    def from_seconds(cls, seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> "Deadline":
        """Return a deadline `seconds` from now; `math.inf` never expires."""
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
        """Return a deadline `duration` after `start`, which may be in the past.

        Args:
            start: A time by the wall clock.
            duration: The duration from `start`.
            clock: The current time's clock.
        """
        at = start.add(duration)
        return cls(at, clock.monotonic() + at.to_seconds() - clock.now(), clock)

    def expired(self, now: Timestamp | None = None) -> bool:
        """Return whether the deadline has expired, by `now` if given, else by this machine's monotonic clock."""
        return self.remaining_seconds() <= 0 if now is None else now >= self._at

    def remaining_seconds(self, now: Timestamp | None = None) -> float:
        """Return the remaining seconds, by `now` if given; never below 0."""
        if now is not None:
            return max(0, self._at.milliseconds - now.milliseconds) / 1000
        return max(0.0, self._monotonic_end - self._clock.monotonic())

    def remaining_ms(self, now: Timestamp | None = None) -> int:
        """Return the remaining milliseconds, by `now` if given; never below 0, and rounded up, so that 0 means
        expired.
        """
        if now is not None:
            return max(0, self._at.milliseconds - now.milliseconds)
        return min(_LAST_MS, math.ceil(min(self.remaining_seconds(), float(_LAST_MS)) * 1000))

    def raise_if_expired(self, message: str = "deadline exceeded", now: Timestamp | None = None) -> None:
        """Raise DeadlineExceeded (a TimeoutError) with `message` if it has expired, by `now` if given."""
        if self.expired(now):
            raise DeadlineExceeded(message)

    def as_timestamp(self) -> Timestamp:
        """Return the deadline by the wall clock, as of its creation."""
        return self._at


def seconds_of(time_span: Duration | float) -> float:
    """Return a duration, given as a Duration or in seconds, in seconds."""
    return time_span.to_seconds() if isinstance(time_span, Duration) else float(time_span)
