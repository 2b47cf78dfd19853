"""Retries within a window: only failures of the last so long count, and no more are kept than can matter."""

from hypothesis import given
from hypothesis import strategies as st

from iris.core.rules.retry_budget import MAX_DELAY_MS, may_retry, recent_failures, retry_delay_ms

MOMENTS = st.lists(st.integers(0, 10_000), max_size=60).map(sorted)


@given(MOMENTS, st.integers(1, 5_000), st.integers(0, 6))
def test_the_first_beyond_the_budget_of_a_window_ends_it(moments: list[int], window_ms: int, budget: int) -> None:
    times: tuple[int, ...] = ()
    for number, now_ms in enumerate(moments):
        times = recent_failures(times, now_ms, window_ms, budget + 1)
        # By all that ever happened, not by what was kept of it.
        counted = sum(now_ms - window_ms < at_ms <= now_ms for at_ms in moments[: number + 1])
        assert may_retry(times, number + 1, window_ms, budget) == (counted <= budget)
        assert len(times) <= budget + 1
        if counted > budget:
            return


@given(MOMENTS, st.integers(0, 6))
def test_without_a_window_the_budget_is_a_total(moments: list[int], budget: int) -> None:
    for failures in range(1, len(moments) + 1):
        assert may_retry((), failures, 0, budget) == (failures <= budget)


def test_one_as_old_as_the_window_does_not_count_nor_what_is_still_to_come_by_a_clock_that_was_set_back() -> None:
    assert recent_failures((0, 1), 100, 100, 9) == (1, 100)
    assert recent_failures((500,), 100, 1000, 9) == (100,)


@given(st.integers(0, 300_000), st.integers(1, 10_000), st.text(max_size=20))
def test_a_delay_doubles_with_each_failure_up_to_its_most_give_or_take_a_quarter(base: int, n: int, name: str) -> None:
    full = min(base * 2 ** min(n - 1, 40), MAX_DELAY_MS)
    found = retry_delay_ms(base, n, name)
    assert int(0.75 * full) <= found <= min(1.25 * full + 1, MAX_DELAY_MS)
    assert found == retry_delay_ms(base, n, name)


def test_the_delays_of_many_tasks_are_spread() -> None:
    assert len({retry_delay_ms(1000, 1, f"/ann/job/{index}:0") for index in range(100)}) > 80
