"""What answers, lists and hosts do to a slice."""

from dataclasses import replace

import pytest

from iris.autoscale.model import Answer, Outcome, SliceRecord, SliceState, worker_id_of
from iris.autoscale.plan import SliceUse
from iris.autoscale.port import Phase, SliceFound
from iris.autoscale.transitions import (
    adopted,
    after_create,
    after_delete,
    after_list,
    after_use,
    is_loss,
    leaving,
    next_name,
    requested,
    seen_ms,
    still_away,
    use_of,
    wanted,
)
from iris.core.state.changes import Changes
from iris.core.state.view import ClusterView
from iris.domain.entities import Worker
from iris.domain.ids import JobId, WorkerId
from iris.domain.resources import Resources

WANTED, REQUESTED, BOOTING, JOINED, LEAVING, GONE, FAILED = SliceState
CREATING, READY, BROKEN, DELETING = Phase


def of(state: SliceState, **fields: object) -> SliceRecord:
    return replace(SliceRecord("g-0", "g", state, 10, 10), **fields)  # type: ignore[arg-type]


def found(phase: Phase, **fields: object) -> SliceFound:
    return replace(SliceFound("g-0", "g", phase), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("group", "known", "name"),
    [
        ("g", [], "g-0"),
        ("g", ["g-1", "g-9", "g-x", "h-30", "g-9-2"], "g-10"),
        ("g-9", ["g-9-2", "g-9"], "g-9-3"),
        ("TPU_v5e.16", ["tpu-v5e-16-4"], "tpu-v5e-16-5"),
        ("x" * 99, [], "x" * 52 + "-0"),
        ("4-chips", [], "s-4-chips-0"),
    ],
)
def test_a_name_was_never_used(group, known, name):
    assert next_name(group, known) == name


@pytest.mark.parametrize(
    ("state", "outcome", "after"),
    [
        (REQUESTED, Outcome.DONE, BOOTING),
        (REQUESTED, Outcome.UNKNOWN, REQUESTED),
        *((REQUESTED, outcome, FAILED) for outcome in list(Outcome)[1:6]),
        (BOOTING, Outcome.STOCK_OUT, BOOTING),
        (JOINED, Outcome.UNKNOWN, JOINED),
        (LEAVING, Outcome.DONE, LEAVING),
    ],
)
def test_answers_to_create(state, outcome, after):
    assert after_create(of(state), Answer(outcome, "words"), 20).state is after


@pytest.mark.parametrize(
    ("state", "lists", "after"),
    [
        (WANTED, [None, None, None], WANTED),
        (REQUESTED, [None], REQUESTED),
        (REQUESTED, [None, None], FAILED),
        (REQUESTED, [CREATING], BOOTING),
        (WANTED, [CREATING], BOOTING),
        (BOOTING, [None, READY, None], BOOTING),
        (BOOTING, [None, None], GONE),
        (JOINED, [None, None], GONE),
        (JOINED, [BROKEN, DELETING], JOINED),
        (LEAVING, [None], LEAVING),
        (LEAVING, [None, READY, None, DELETING], LEAVING),
        (LEAVING, [None, None], GONE),
        (GONE, [None, None], GONE),
        (GONE, [DELETING], LEAVING),
        (FAILED, [CREATING], BOOTING),
        (FAILED, [BROKEN], LEAVING),
    ],
)
def test_lists(state, lists, after):
    record = of(state)
    for number, phase in enumerate(lists):
        record = after_list(record, phase and found(phase), 20 + number)
    assert record.state is after


def test_what_the_provider_says_of_a_slice_that_boots_is_kept():
    record = after_list(of(BOOTING), found(CREATING, words="no python"), 20)
    assert record.words == "no python"
    assert after_list(record, found(READY), 30).words == ""
    assert after_list(of(JOINED), found(READY, words="well"), 20).words == ""


def test_a_slice_that_was_never_asked_for_is_gone_and_others_must_leave():
    assert leaving(of(WANTED), "enough", 20) == of(GONE, changed_ms=20, reason="enough")
    for state in (REQUESTED, BOOTING, JOINED):
        assert leaving(of(state), "enough", 20) == of(LEAVING, changed_ms=20, reason="enough")
    for record in (of(GONE), of(FAILED), of(LEAVING, reason="first")):
        assert leaving(record, "enough", 20) == record
    assert requested(of(WANTED), 20).state is REQUESTED
    assert requested(of(LEAVING), 20).state is LEAVING
    assert after_delete(of(LEAVING), Answer(Outcome.RATE, "slow")) == of(LEAVING, outcome=Outcome.RATE, words="slow")
    assert wanted("g-1", "g", 5, "ann") == SliceRecord("g-1", "g", WANTED, 5, 5, asked_by="ann")


def test_a_listed_slice_without_a_row_is_adopted_or_must_leave():
    assert adopted(found(READY), ["g"], 20) == SliceRecord("g-0", "g", BOOTING, 20, 20, ready_ms=20)
    other = adopted(found(CREATING), ["h"], 20)
    assert (other.state, other.reason) == (LEAVING, "the cluster file has no scale group 'g'")


def test_the_last_host_joins_it_and_work_uses_it():
    assert after_use(of(BOOTING), 2, SliceUse(joined=1), 20).state is BOOTING
    joined = after_use(of(BOOTING, words="Server disconnected"), 2, SliceUse(joined=2), 20)
    assert (joined.state, joined.joined_ms, joined.used_ms, joined.words) == (JOINED, 20, 20, "")
    assert after_use(joined, 2, SliceUse(joined=2), 30) == joined
    for use in (SliceUse(busy=1), SliceUse(is_needed=True)):
        assert after_use(joined, 2, use, 30).used_ms == 30
    assert is_loss(joined, SliceUse(lost=(1,)))
    assert is_loss(joined, SliceUse(broken="preempted"))
    assert is_loss(of(BOOTING), SliceUse())
    assert not is_loss(joined, SliceUse(joined=2))


def test_what_is_known_of_hosts():
    names = [worker_id_of("g-0", number) for number in range(5)]
    workers = [
        Worker(names[0], "i", Resources(1), connected=True),
        Worker(names[1], "i", Resources(1), connected=True, cordon_reason="disk"),
        Worker(names[2], "i", Resources(1), connected=False),
        Worker(names[3], "i", Resources(1), connected=False),
    ]
    view = ClusterView()
    view.apply(Changes.of(workers=workers))

    def use(record: SliceRecord, listed: SliceFound | None = None, kept: tuple[WorkerId, ...] = ()) -> SliceUse:
        holders = dict.fromkeys(kept, JobId("/u/gang"))
        return use_of(record, names, listed, view, holders, lambda name: name != names[3])

    assert use(of(BOOTING)) == SliceUse(joined=2, closed=1, lost=(3,))
    ill = use(of(JOINED, joined_ms=15))
    assert ill == SliceUse(2, closed=1, lost=(1, 3, 4), broken="host 1 is cordoned: disk"), "number 4 had joined"
    assert use(of(BOOTING), kept=(names[0],)).is_needed
    broken = use(of(JOINED, joined_ms=15), found(BROKEN, words="preempted", hosts_lost=(1,)))
    assert (broken.broken, broken.lost) == ("preempted", (1, 3, 4))
    assert use(of(BOOTING), found(DELETING)).broken == "the provider says that it is deleting"
    assert use(of(LEAVING), found(DELETING)).broken == ""
    view.apply(Changes.of(workers=[replace(workers[1], cordoned_by="admin root")]))
    assert use(of(BOOTING)).is_needed, "an operator looks at it"
    assert use(of(JOINED, joined_ms=15)) == SliceUse(2, closed=1, is_needed=True, lost=(3, 4))


@pytest.mark.parametrize(
    ("after", "away"),
    [
        ((None, (False, 5), (False, 5), (True, 5)), {0, 1, 2}),
        ((None, (False, 5), (True, 20), (True, 5)), {0, 1}),
        ((None, (False, 25), (False, 5), (True, 5)), {0, 2}),  # returned, and lost again
        ((None, (False, 25), (False, 25), (False, 25)), {0}),
        (((True, 20), (True, 20), (True, 20), (False, 25)), set()),
    ],
)
def test_a_host_that_returned_to_a_new_controller_is_not_away_though_it_was_lost_again(after, away):
    names = [worker_id_of("g-0", number) for number in range(4)]

    def view(*hosts: tuple[bool, int] | None) -> ClusterView:
        made = ClusterView()
        for name, host in zip(names, hosts, strict=True):
            if host is not None:
                worker = Worker(name, "i", Resources(1), connected=host[0], last_seen_at_ms=host[1])
                made.apply(Changes.of(workers=[worker]))
        return made

    before = seen_ms(names, view(None, (False, 5), (False, 5), (True, 5)))
    assert still_away(names, view(*after), before) == away
