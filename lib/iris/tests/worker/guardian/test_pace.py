"""How fast output is taken: never more than the burst and the rate allow, and never stopped for good."""

from hypothesis import given
from hypothesis import strategies as st

from iris.worker.output.pace import OutputPace

BURST, RATE, MOST_READ = 1000, 100, 64


@given(st.lists(st.tuples(st.integers(1, MOST_READ), st.floats(0, 30)), min_size=1, max_size=300))
def test_no_more_is_taken_than_burst_and_rate_allow(reads: list[tuple[int, float]]) -> None:
    """Each read comes a while after the pause that the one before has asked for."""
    pace = OutputPace(BURST, RATE)
    begin = now = 50.0
    taken = 0
    for count, idle in reads:
        now += idle
        taken += count
        assert taken - count <= BURST + (now - begin) * RATE + 1e-6, "before this read there was something left"
        pause = pace.pause_after(count, now)
        assert 0 <= pause <= 0.05 + MOST_READ / RATE
        now += pause


def test_a_writer_that_never_stops_gets_its_rate() -> None:
    pace = OutputPace(BURST, RATE)
    now, taken = 7.0, 0
    while now < 107.0:
        taken += 4
        now += pace.pause_after(4, now)
    assert BURST + 100 * RATE - MOST_READ <= taken <= BURST + 100 * RATE + MOST_READ


def test_after_a_quiet_time_there_is_a_burst_again_and_no_more_than_that() -> None:
    pace = OutputPace(BURST, RATE)
    assert pace.pause_after(BURST - 1, 1.0) == 0
    assert pace.pause_after(BURST - 1, 10_000.0) == 0
    assert pace.pause_after(1, 10_000.0) > 0
