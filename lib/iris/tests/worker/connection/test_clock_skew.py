"""Distance of clocks from round trips: within its stated error, whatever the two ways took."""

from hypothesis import given
from hypothesis import strategies as st

from iris.worker.connection.clock_skew import ClockSkew, SkewEstimate

WAYS = st.integers(0, 5000)
TRIPS = st.lists(st.tuples(WAYS, WAYS), min_size=1, max_size=8)


@given(st.integers(-86_400_000, 86_400_000), TRIPS)
def test_the_true_distance_is_within_the_error(skew_ms: int, trips: list[tuple[int, int]]) -> None:
    estimate, now = SkewEstimate(), 1_700_000_000_000
    for there, back in trips:
        sent, now = now, now + there + back
        estimate.add(sent, now, now + skew_ms, sent + there)
    best = estimate.best
    assert best is not None
    assert abs(best.skew_ms - skew_ms) <= best.error_ms
    assert best.error_ms == min((there + back + 1) // 2 for there, back in trips)


def test_before_the_first_answer_nothing_is_known_and_a_clock_that_was_set_is_seen() -> None:
    estimate = SkewEstimate()
    assert estimate.best is None
    estimate.add(10, 20, 1_000, 0)  # a controller of an earlier release does not say
    estimate.add(20, 10, 1_000, 1_000)
    assert estimate.best is None
    estimate = SkewEstimate()
    estimate.add(0, 2, 5_000, 5_000)
    for beat in range(1, 9):
        estimate.add(beat * 1000, beat * 1000 + 10, 605_000 + beat * 1000, 5_000 + beat * 1000)
    assert estimate.best == ClockSkew(600_000 - 5, 5)
