"""Series of usage keep totals, peaks and times exactly, within their bounds."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.domain.usage import Usage
from iris.domain.usage_series import JOB_BYTES, TASK_BYTES, TaskSeries, rows_of

T = 1_790_000_000_000
NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 10**6)
STEPS = st.lists(st.tuples(st.integers(0, 1), st.integers(-5, 10**7), NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1)


@given(STEPS, st.integers(16, 24), st.booleans())
def test_totals_peaks_and_times_stay_exact_within_the_bound(
    steps: list[tuple[int, ...]], rows: int, restarts: bool
) -> None:
    series, at_ms = TaskSeries(rows), T
    most = {0: [0] * 4, 1: [0] * 4}
    first: dict[int, int] = {}
    for attempt, later_ms, cpu_ms, millis, memory, peak in steps:
        at_ms += later_ms
        first.setdefault(attempt, at_ms)
        series.add(attempt, 0, Usage(cpu_ms, millis, memory, peak, at_ms=at_ms))
        limited = [min(number, 2**48) for number in (at_ms, cpu_ms, millis, max(memory, peak))]
        most[attempt] = list(map(max, most[attempt], limited))
        text = series.pack()
        assert len(text) <= rows * 64 + 32
        if restarts:
            series = TaskSeries.unpack(text, rows)
    lives = {number: points for number in most if (points := series.points(number))}
    assert list(lives) == sorted({step[0] for step in steps})
    assert len(lives) + sum(map(len, lives.values())) <= rows
    for number, points in lives.items():
        totals = points[-1].until_ms, sum(point.cpu_ms for point in points)
        peaks = max(point.cpu_peak_millis for point in points), max(point.memory_peak_bytes for point in points)
        assert [*totals, *peaks] == most[number]
        assert points[0].from_ms == first[number]
        assert all(one.until_ms == two.from_ms for one, two in pairwise(points))
        assert all(point.memory_bytes <= point.memory_peak_bytes for point in points)


def test_a_long_life_has_half_of_its_points_at_least_and_the_average_of_its_memory() -> None:
    series = TaskSeries(rows_of(1))
    for number in range(1, 2001):
        memory = 2**30 if number == 1234 else 2**20 * (number % 2 + 1)
        series.add(0, T, Usage(5000 * number, 1000, memory, at_ms=T + 5000 * number))
    points = series.points(0)
    assert 79 <= len(points) < 160
    assert {point.cpu_ms for point in points[:-1]} == {points[0].until_ms - T}
    assert [point.memory_peak_bytes for point in points].count(2**30) == 1, "a short peak is seen"
    assert series.memory_mean(0) == (2**30 + 2**20 * (999 + 2 * 1000)) // 2000
    series.add(0, T, Usage(5000 * 2001, 0, 0, 2**31, at_ms=T + 5000 * 2001))
    assert series.memory_mean(0) == (2**30 + 2**20 * (999 + 2 * 1000)) // 2000, "an end measures no memory"
    assert series.points(0)[-1].memory_peak_bytes == 2**31


def test_attempts_share_the_points_of_their_task() -> None:
    series = TaskSeries(33)
    for attempt in range(100):
        for number in range(9):
            series.add(attempt, T, Usage(memory_bytes=1024, at_ms=T + number))
    assert [attempt for attempt in range(100) if series.points(attempt)] == [96, 97, 98, 99]
    assert [len(series.points(attempt)) for attempt in (96, 97, 98, 99)] == [5, 5, 9, 9]


@pytest.mark.parametrize(("replicas", "rows"), [(1, 160), (1900, 160), (5000, 62), (100_000, 2), (10**6, 0)])
def test_a_job_has_a_bound(replicas: int, rows: int) -> None:
    most = rows * 64 + 32
    assert rows_of(replicas) == rows
    assert most <= TASK_BYTES
    assert not rows or replicas * most <= JOB_BYTES


@pytest.mark.parametrize("text", ["1", "1AAAA", "1eJxjYGBgAAAABAAB", "1€"])
def test_damage_is_told_and_another_format_is_empty(text: str) -> None:
    with pytest.raises(ValueError, match="a damaged series of usage"):
        TaskSeries.unpack(text, 10)
    assert TaskSeries.unpack("", 10).points(0) == TaskSeries.unpack("9" + text, 10).points(0) == []
