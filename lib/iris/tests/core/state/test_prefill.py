"""How long tasks of a kind are expected to run."""

import pytest

from iris.core.state.booking import Demand
from iris.core.state.prefill import RunTimes
from iris.domain.resources import Resources

KIND = ("ann", Demand(Resources(1000), ()))


@pytest.fixture
def times() -> RunTimes:
    return RunTimes()


def test_it_rises_at_once_and_falls_slowly(times: RunTimes) -> None:
    assert times.expected_ms(KIND) is None, "of what never ended nothing is known"
    for took_ms, expected in ((10, 10), (110, 60), (10, 55)):
        times.note_end(KIND, took_ms)
        assert times.expected_ms(KIND) == expected


def test_after_a_hand_back_a_dozen_or_two_of_short_ends_make_up_for_it(times: RunTimes) -> None:
    times.note_end(KIND, 5)
    times.note_slow(KIND)
    ends = 0
    while (times.expected_ms(KIND) or 0) > 100:
        times.note_end(KIND, 5)
        ends += 1
    assert 12 <= ends <= 24
    times = RunTimes()
    times.note_end(KIND, 60_000)
    times.note_slow(KIND)
    assert times.expected_ms(KIND) == 60_000, "it makes nothing look shorter"


def test_only_so_many_kinds_are_kept(times: RunTimes) -> None:
    kinds = [(f"user-{number}", KIND[1]) for number in range(1001)]
    for kind in kinds:
        times.note_end(kind, 1)
    assert times.expected_ms(kinds[0]) is None
    assert times.expected_ms(kinds[-1]) == 1
