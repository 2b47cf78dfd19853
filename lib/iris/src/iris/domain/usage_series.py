"""The usage of a task's attempts over their whole lives, in a bounded number of points. Pure.

A full series merges its points in pairs, which halves its resolution. Totals, peaks and times stay exact.
"""

import struct
import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

from iris.domain.usage import Usage

TASK_ROWS: Final = 160
"""Maximum number of rows of a task: one for each point, and one for each attempt."""
TASK_BYTES: Final = 20_000
JOB_BYTES: Final = 20_000_000
_ROWS_EACH: Final = 8
"""The oldest attempts are dropped while there is no room for this number of rows each."""
_WIDTH: Final = 6
_ROW_BYTES: Final = _WIDTH * 8 * 4 // 3  # as text
_FRAME_BYTES: Final = 32  # what compression, Base64 and the format's number add
_FORMAT: Final = "1"
_MOST: Final = 1 << 48
"""Maximum of a measured number: sums of millions of them are below 2**63."""

# Columns of a point.
_SPAN_MS, _CPU_MS, _CPU_PEAK, _COUNT, _MEMORY_KIB, _PEAK = range(_WIDTH)


class UsagePoint(NamedTuple):
    """The usage during one span of an attempt.

    Args:
        from_ms: Start of the span, and the end of the one before (Unix ms). until_ms: Its end.
        cpu_ms: Processor time during the span. cpu_peak_millis: The highest measured use in thousandths of a core.
        memory_bytes: Average; 0 if not measured. memory_peak_bytes: The highest measured value.
    """

    from_ms: int
    until_ms: int
    cpu_ms: int
    cpu_peak_millis: int
    memory_bytes: int
    memory_peak_bytes: int


def rows_of(replicas: int) -> int:
    """Return the number of rows for each task of a job: `TASK_ROWS`, or fewer to keep the job below `JOB_BYTES`.

    Jobs of more than 1,940 tasks have fewer: 61 points with 5,000 tasks, one with 100,000.
    """
    return max(min(TASK_ROWS, (JOB_BYTES // max(replicas, 1) - _FRAME_BYTES) // _ROW_BYTES), 0)


class TaskSeries:
    """The series of a task's attempts, which share its rows. A new attempt takes them from the longest series. Of more
    than 20 attempts, or fewer in a large job, the oldest are dropped.

    Args:
        rows: The maximum number of rows; below 2, nothing is kept.
    """

    __slots__ = ("_lives", "_rows")

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._lives: dict[int, _Life] = {}

    def add(self, attempt: int, began_ms: int, use: Usage) -> None:
        """Add a measurement. One that is older than the last one changes only totals and peaks.

        Args:
            attempt: The attempt's number.
            began_ms: Start of the attempt (Unix ms); 0 if unknown.
            use: The measurement.
        """
        if self._rows < 2:
            return
        life = self._lives.get(attempt)
        if life is None:
            at_ms = min(use.at_ms, _MOST)
            life = self._lives[attempt] = _Life(min(began_ms or at_ms, at_ms))
        if life.add(use):
            self._fit()

    def memory_mean(self, attempt: int) -> int:
        """Return the average memory of an attempt in bytes; 0 if unknown."""
        life = self._lives.get(attempt)
        return 1024 * life.memory_kib // life.count if life is not None and life.count else 0

    def points(self, attempt: int) -> list[UsagePoint]:
        """Return the points of an attempt, oldest first; none if unknown."""
        life = self._lives.get(attempt)
        return [] if life is None else list(life.shown())

    @property
    def is_chart(self) -> bool:
        """Return whether an attempt has more than one point."""
        return any(len(life.points) > _WIDTH for life in self._lives.values())

    def pack(self) -> str:
        """Return the series as text of at most `TASK_BYTES`."""
        numbers = array("q")
        for attempt, life in self._lives.items():
            numbers.extend((attempt, life.start_ms, life.per_point, len(life.points), 0, 0))
            numbers.extend(life.points)
        data = zlib.compress(struct.pack(f"<{len(numbers)}q", *numbers), 1)
        return _FORMAT + b64encode(data).decode()

    @classmethod
    def unpack(cls, text: str, rows: int) -> Self:
        """Return the series from `pack`; an empty one for an empty text or another format.

        Args:
            text: The text.
            rows: See the class.

        Raises:
            ValueError: The text is damaged.
        """
        found = cls(rows)
        if rows < 2 or not text.startswith(_FORMAT):
            return found
        try:
            data = zlib.decompress(b64decode(text[1:], validate=True))
            numbers = array("q", struct.unpack(f"<{len(data) // 8}q", data))
            at = 0
            while at < len(numbers):
                attempt, start_ms, per_point, count, _, _ = numbers[at : at + _WIDTH]
                points = numbers[at + _WIDTH : at + _WIDTH + count]
                found._lives[attempt] = _Life(start_ms, per_point, points)
                at += _WIDTH + count
        except (zlib.error, struct.error, OverflowError, ValueError) as error:
            raise ValueError(f"a damaged series of usage: {error}") from None
        found._fit()
        return found

    def _fit(self) -> None:
        lives = self._lives
        while len(lives) > max(self._rows // _ROWS_EACH, 1):
            del lives[next(iter(lives))]
        while sum(len(life.points) + _WIDTH for life in lives.values()) > self._rows * _WIDTH:
            max(lives.values(), key=lambda life: len(life.points)).halve()  # the oldest of these


class _Life:
    """The series of one attempt. `points` contains rows of `_WIDTH` numbers, each of at most `per_point` samples."""

    __slots__ = ("at_ms", "count", "cpu_ms", "memory_kib", "peak_bytes", "per_point", "points", "start_ms")

    def __init__(self, start_ms: int, per_point: int = 1, points: Sequence[int] = ()) -> None:
        self.start_ms, self.per_point, self.points = start_ms, per_point, array("q", points)
        self.at_ms = start_ms + sum(points[_SPAN_MS::_WIDTH])
        self.cpu_ms = sum(points[_CPU_MS::_WIDTH])
        self.count = sum(points[_COUNT::_WIDTH])
        self.memory_kib = sum(points[_MEMORY_KIB::_WIDTH])
        self.peak_bytes = max(points[_PEAK::_WIDTH], default=0)

    def add(self, use: Usage) -> bool:
        """Add a measurement, and return whether it needed a new point."""
        at_ms, cpu_ms = max(min(use.at_ms, _MOST), self.at_ms), max(min(use.cpu_ms, _MOST), self.cpu_ms)
        memory, peak = min(use.memory_bytes, _MOST), min(use.memory_peak_bytes, _MOST)
        # The report of an end measures neither memory nor recent processor time.
        is_sample = (memory > 0 or use.cpu_millis > 0) and (at_ms > self.at_ms or not self.points)
        memory_kib = memory >> 10 if is_sample else 0
        # A new peak was reached after the last measurement.
        highest = peak if peak > self.peak_bytes and peak > memory else memory
        new = (
            at_ms - self.at_ms,
            cpu_ms - self.cpu_ms,
            min(use.cpu_millis, _MOST),
            int(is_sample),
            memory_kib,
            highest,
        )
        self.at_ms, self.cpu_ms, self.peak_bytes = at_ms, cpu_ms, max(self.peak_bytes, highest)
        self.count += is_sample
        self.memory_kib += memory_kib
        points = self.points
        if points and points[_COUNT - _WIDTH] + is_sample <= self.per_point:
            merged = _merged(points[-_WIDTH:], new)
            del points[-_WIDTH:]
            points.extend(merged)
            return False
        points.extend(new)
        return True

    def halve(self) -> None:
        """Merge the points in pairs."""
        old, new = self.points, array("q")
        for at in range(0, len(old), 2 * _WIDTH):
            one, two = old[at : at + _WIDTH], old[at + _WIDTH : at + 2 * _WIDTH]
            new.extend(_merged(one, two) if two else one)
        self.points, self.per_point = new, 2 * self.per_point

    def shown(self) -> Iterator[UsagePoint]:
        """Yield the points, oldest first."""
        from_ms = self.start_ms
        for row in zip(*[iter(self.points)] * _WIDTH, strict=True):
            span_ms, cpu_ms, cpu_peak, count, memory_kib, peak = row
            memory = 1024 * memory_kib // max(count, 1)
            yield UsagePoint(from_ms, from_ms + span_ms, cpu_ms, cpu_peak, memory, peak)
            from_ms += span_ms


def _merged(one: Sequence[int], two: Sequence[int]) -> tuple[int, ...]:
    return (
        one[_SPAN_MS] + two[_SPAN_MS],
        one[_CPU_MS] + two[_CPU_MS],
        max(one[_CPU_PEAK], two[_CPU_PEAK]),
        one[_COUNT] + two[_COUNT],
        one[_MEMORY_KIB] + two[_MEMORY_KIB],
        max(one[_PEAK], two[_PEAK]),
    )
