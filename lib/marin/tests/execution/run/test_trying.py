"""The rule by which a step is tried again."""

import random
from collections import Counter

import pytest

from marin.execution.config.tries import Tries, check_tries
from marin.execution.run.trying import CHARGED, INTERRUPTED, MOST_INTERRUPTIONS, NEVER, Outcome, Tried, advance
from rigging.errors import InvalidRequest


@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_outcomes_end_as_documented(seed: int) -> None:
    chance = random.Random(seed)
    seen: Counter[Outcome] = Counter()
    while seen.total() < 1000:
        tries = Tries(retries=chance.choice([0, 1, 3, 20]), retry_delay=chance.choice([0.0, 2.5]))
        weights = [chance.choice([0.0, 1.0, 9.0]) for _ in Outcome]
        tried, happened = NEVER, Counter[Outcome]()
        while True:
            outcome = chance.choices(list(Outcome), weights if any(weights) else None)[0]
            has_ended = chance.random() > 0.02
            seen[outcome] += 1
            happened[outcome] += 1
            following = advance(tries, tried, outcome, has_ended=has_ended)
            tried = following.tried
            failures = sum(happened[each] for each in CHARGED)
            interruptions = sum(happened[each] for each in INTERRUPTED)
            assert tried == Tried(failures, interruptions), "each attempt is counted once, and on its own account"
            is_last = (
                outcome in (Outcome.SUCCEEDED, Outcome.STOPPED)
                or not has_ended
                or tries.retries == 0
                or failures > tries.retries
                or interruptions > MOST_INTERRUPTIONS
            )
            assert following.delay == (None if is_last else tries.retry_delay)
            if is_last:
                break
        assert failures <= tries.retries + 1
    assert set(seen) <= set(Outcome)


def test_a_preemption_costs_no_retry() -> None:
    tries, tried = Tries(retries=1), NEVER
    for outcome in [Outcome.PREEMPTED, Outcome.LOST] * 40:
        following = advance(tries, tried, outcome)
        tried = following.tried
        assert following.delay == 0
    assert advance(tries, tried, Outcome.FAILED).delay == 0
    assert advance(tries, advance(tries, tried, Outcome.FAILED).tried, Outcome.TIMED_OUT).delay is None


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((-1, None, None), "retries=-1"), ((True, None, None), "retries=True"), ((1.5, None, None), "retries=1.5"),
        ((1001, None, None), "1000"), ((None, -0.5, None), "retry_delay=-0.5"),
        ((None, float("inf"), None), "retry_delay=inf"), ((None, None, 0), "timeout=0"),
        ((None, None, "5s"), "timeout='5s'"),
    ],
)  # fmt: skip
def test_wrong_numbers_are_refused_by_name(numbers: tuple[object, object, object], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        check_tries("step 'a'", *numbers)
