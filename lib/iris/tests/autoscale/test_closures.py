"""Which groups are not tried for a while, after answers of providers and after losses."""

from dataclasses import replace

import pytest

from iris.autoscale.closures import after_answer, after_gone, closure_of, still_true
from iris.autoscale.lives import after_loss, avoided_hosts, create_pauses, host_failures
from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState
from iris.domain.resources import Resources
from iris.domain.scale_groups import GcpTemplate, ScaleGroup

NOW = 100_000_000
A = ScaleGroup("a", Resources(1000), quota_pool="p", allocation_tier=1, template=GcpTemplate("mine"))
HIGHER, LOWER = replace(A, name="higher", allocation_tier=2), replace(A, name="lower", allocation_tier=0)
BESIDE = ScaleGroup("beside", Resources(1000), template=GcpTemplate("mine"))
ELSEWHERE = ScaleGroup("elsewhere", Resources(1000), template=GcpTemplate("other"))
GROUPS = (A, HIGHER, LOWER, BESIDE, ELSEWHERE)


def answers(*outcomes, group=A, every_ms=0, closures=None):
    """The closures after answers, each `every_ms` after the one before, and the time of the last."""
    closures, now = closures or {}, NOW
    for number, outcome in enumerate(outcomes):
        now = NOW + number * every_ms
        closures = after_answer(closures, group, Answer(outcome, f"{outcome} it is"), now, 7)
    return closures, now


def closed(closures, now, groups=GROUPS):
    return [group.name for group in groups if (item := closure_of(closures, group, now)) and item.is_closed(now)]


@pytest.mark.parametrize(
    ("outcome", "names", "first_s", "longest_s"),
    [
        (Outcome.STOCK_OUT, ["a"], 60, 900),
        (Outcome.QUOTA, ["a", "higher"], 60, 900),
        (Outcome.RATE, ["a", "higher", "lower", "beside"], 10, 300),
        (Outcome.UNKNOWN, ["a"], 10, 120),
        (Outcome.PERMISSION, ["a"], 0, 0),
        (Outcome.CONFIG, ["a"], 0, 0),
    ],
)
def test_an_outcome_closes_what_it_concerns_for_growing_pauses_and_a_slice_that_is_made_reopens_it(
    outcome, names, first_s, longest_s
):
    closures, now = answers(outcome)
    assert closed(closures, now) == names
    found = closure_of(closures, A, now)
    assert (found.outcome, found.words, found.failures) == (outcome, f"{outcome} it is", 1)
    if first_s:
        assert 0.8 * first_s <= (found.until_ms - now) / 1000 <= 1.2 * first_s
        assert closed(closures, found.until_ms) == []
        again = closure_of(answers(*[outcome] * 20, every_ms=(longest_s + 1) * 1000)[0], A, NOW)
        assert again.failures == 20
        assert again.until_ms - NOW - 19 * (longest_s + 1) * 1000 == longest_s * 1000
    else:
        assert closed(closures, now + 10**10) == names
    assert closed(answers(Outcome.DONE, closures=closures)[0], now) == []


def test_calls_of_one_burst_count_once_and_an_old_failure_is_forgotten():
    closures, now = answers(*[Outcome.STOCK_OUT] * 10)
    assert closure_of(closures, A, now).failures == 1
    closures, now = answers(*[Outcome.STOCK_OUT] * 3, every_ms=3_600_000)
    assert closure_of(closures, A, now).failures == 1


def test_a_stock_out_is_no_quota_and_a_lower_tier_moves_the_bar():
    closures, now = answers(Outcome.STOCK_OUT)
    assert closed(closures, now, [HIGHER, LOWER]) == []
    closures, now = answers(Outcome.QUOTA, group=LOWER, closures=answers(Outcome.QUOTA)[0])
    assert closed(closures, now) == ["a", "higher", "lower"]
    freed = after_gone(closures, BESIDE, now)
    assert closed(freed, now) == ["a", "higher", "lower"], "it is no slice of the pool"
    freed = after_gone(closures, LOWER, now)
    assert (closed(freed, now), freed["pool p"].failures) == ([], 1)
    assert answers(Outcome.QUOTA, closures=freed, group=A)[0]["pool p"].failures == 2
    stock_out = answers(Outcome.STOCK_OUT)[0]
    assert after_gone(stock_out, A, NOW) is stock_out
    kept = answers(Outcome.DONE, group=LOWER, closures=answers(Outcome.QUOTA)[0])[0]
    assert closed(kept, NOW) == ["a", "higher"], "a slice below the tier proves nothing for it"


def test_a_changed_definition_is_tried_and_nothing_else_ends_a_refusal():
    closures, now = answers(Outcome.CONFIG, Outcome.STOCK_OUT)
    assert closure_of(closures, A, now).outcome is Outcome.CONFIG
    assert closed(still_true(closures, GROUPS), now) == ["a"]
    assert still_true(closures, [replace(A, max_slices=2)]) == {}
    assert still_true(closures, []) == {}
    timed, _ = answers(Outcome.STOCK_OUT)
    assert still_true(timed, [replace(A, max_slices=2)]) == timed


def lives(*minutes, group="a", hosts=()):
    found = ()
    for lived in minutes:
        record = SliceRecord("s", group, SliceState.LEAVING, 0, 0, joined_ms=NOW - lived * 60_000 if lived else 0)
        found = after_loss(found, record, NOW, hosts)
    return found


@pytest.mark.parametrize(
    ("minutes", "old_slices", "pause_s"),
    [
        ([], 0, None),
        ([5], 0, None),
        ([5, 5], 0, None),  # two losses prove nothing
        ([5, 5, 0], 0, 60),
        ([5] * 5, 0, 240),
        ([5] * 20, 0, 900),
        ([5, 5, 0, 40, 50, 60, 70], 0, None),  # most live long
        ([5, 5, 5], 4, None),  # 4 others live for long already
        ([5, 5, 5], 3, 60),
    ],
)
def test_a_group_whose_slices_mostly_live_shortly_is_slowed(minutes, old_slices, pause_s):
    slices = [
        SliceRecord(str(number), "a", SliceState.JOINED, 0, 0, joined_ms=NOW - 1_800_000)
        for number in range(old_slices)
    ]
    slices += [SliceRecord("young", "a", SliceState.JOINED, 0, 0, joined_ms=NOW - 60_000)]
    expected = {} if pause_s is None else {"a": pause_s * 1000}
    assert create_pauses(lives(*minutes), slices, 1800, NOW) == expected
    assert create_pauses(lives(*minutes), slices, 1800, NOW + 7_200_001) == {}


@pytest.mark.parametrize(
    ("minutes", "pause_s"),
    [
        ([5, 5], None),  # it joined: the host is tried again at once
        ([0], 30),
        ([5, 0], 300),
        ([5, 5, 5], 7200),  # quarantine
    ],
)
def test_a_host_whose_slices_fail_backs_off_and_is_quarantined(minutes, pause_s):
    bad = lives(*minutes, hosts=("h1",))
    assert host_failures(bad, NOW) == {"h1": len(minutes)}
    assert avoided_hosts(bad, NOW) == ({"h1": NOW + pause_s * 1000} if pause_s else {})
    assert avoided_hosts(bad, NOW + 7_200_000) == {}
