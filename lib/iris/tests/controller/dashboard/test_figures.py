import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.controller.dashboard.figures import Figures, Times, percentile


def test_times_are_summed_and_the_latest_ranked() -> None:
    times = Times()
    for _ in range(990):
        times.add(0.001)
    for _ in range(10):
        times.add(0.1, failed=True)
    assert (times.count, times.errors) == (1000, 10)
    assert times.seconds == pytest.approx(1.99)
    assert times.last_ms == pytest.approx(100)
    assert times.p99_ms == pytest.approx(1)
    times.add(0.1)
    assert times.p99_ms == pytest.approx(100), "the oldest is no longer counted"


def test_calls_are_counted_by_their_names() -> None:
    figures = Figures()
    figures.called("/a.B/C", 1.0, failed=True)
    figures.called("/a.B/C", 1.0, failed=False)
    assert (figures.calls["/a.B/C"].count, figures.calls["/a.B/C"].errors) == (2, 1)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)
    below = [value for value in values if value < found]
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert len(below) < share * len(values)
    assert percentile([], share) == 0
