"""What follows from a worker's silence, and when."""

import pytest

from iris.core.rules.contact import ContactRules, Contacts
from iris.domain.events import AttemptFenced, Event, WorkerHeard, WorkerLate, WorkerLost
from iris.domain.ids import WorkerId
from iris.domain.states import TaskState
from support.iris.scheduling import InMemoryCluster

W = WorkerId("w")
RULES = ContactRules(late_after_ms=10_000, lost_after_ms=60_000, fence_margin_ms=5_000)


@pytest.fixture
def contacts() -> Contacts:
    made = Contacts(RULES, 0)
    made.begin(W, 0)
    return made


def watch(contacts: Contacts, cluster: InMemoryCluster, start_ms: int, end_ms: int) -> list[tuple[int, Event]]:
    """Look every second, as the controller does; apply and return what comes of it, with its time."""
    found = []
    for now_ms in range(start_ms, end_ms + 1, 1000):
        for event in contacts.look(cluster.view, now_ms):
            found.append((now_ms, event))
            cluster.do(event)
    return found


def test_a_silent_worker_is_late_and_then_lost_each_once(contacts, cluster):
    found = watch(contacts, cluster, 1000, 300_000)
    lost = WorkerLost(W, "worker w was not heard for 60 s")
    assert found == [(10_000, WorkerLate(W, 10_000)), (60_000, lost)]
    assert not contacts.is_present(W)


def test_a_worker_that_speaks_is_never_late_and_a_late_one_that_speaks_again_is_used_again(contacts, cluster):
    for now_ms in range(0, 300_000, 5000):
        assert not watch(contacts, cluster, now_ms, now_ms + 4000)
        assert not contacts.heard(W, now_ms + 4500)
    watch(contacts, cluster, 300_000, 312_000)
    assert contacts.heard(W, 312_500), "it was late"
    assert not contacts.heard(W, 312_600)
    cluster.do(WorkerHeard(W))
    assert not watch(contacts, cluster, 313_000, 322_000)
    assert watch(contacts, cluster, 323_000, 323_000) == [(323_000, WorkerLate(W, 10_400))]


def test_an_exclusive_attempt_is_fenced_after_its_time_and_the_margin(contacts, cluster):
    cluster.launch("/u/a", exclusive=True, fence_after_ms=100_000)
    cluster.observe("/u/a/0:0", TaskState.RUNNING)
    found = watch(contacts, cluster, 1000, 105_000)
    assert [type(event) for _, event in found] == [WorkerLate, WorkerLost]
    assert cluster.task("/u/a/0").state is TaskState.RUNNING
    # 100 s, the margin of 5 s, and 0.1 s for clocks that run apart.
    assert contacts.fenced_in_ms(W, cluster.job("/u/a").spec, 105_000) == 100
    ((at_ms, event),) = watch(contacts, cluster, 106_000, 200_000)
    assert (at_ms, type(event)) == (106_000, AttemptFenced)
    (cause,) = cluster.task("/u/a/0").causes
    assert cause == "attempt 0 on w: its host had no contact for 106 s and has ended it by now"


def test_a_fence_may_end_before_the_worker_is_lost(contacts, cluster):
    cluster.launch("/u/a", exclusive=True, fence_after_ms=20_000)
    found = watch(contacts, cluster, 1000, 30_000)
    assert [(at_ms, type(event)) for at_ms, event in found] == [(10_000, WorkerLate), (26_000, AttemptFenced)]


def test_time_in_which_the_controller_itself_stood_still_is_nobodys_silence(contacts, cluster):
    """What workers said meanwhile has not been read yet."""
    cluster.launch("/u/a", exclusive=True, fence_after_ms=20_000)
    watch(contacts, cluster, 1000, 8000)
    assert not contacts.look(cluster.view, 98_000)
    found = watch(contacts, cluster, 99_000, 124_000)
    assert [(at_ms, type(event)) for at_ms, event in found] == [(108_000, WorkerLate), (124_000, AttemptFenced)]


def test_a_new_session_counts_from_its_begin(contacts, cluster):
    watch(contacts, cluster, 1000, 70_000)
    contacts.begin(W, 70_500)
    assert contacts.is_present(W)
    assert contacts.silent_ms(W, 72_000) == 1500
    cluster.reconnect("w", "a", [])
    assert not watch(contacts, cluster, 71_000, 80_000)


def test_workers_that_went_long_ago_are_not_mentioned(cluster):
    cluster.do(WorkerLost(W, "not heard"))
    contacts = Contacts(RULES, 0)
    contacts.begin(W, 0)
    contacts.begin(WorkerId("forgotten"), 0)
    assert not watch(contacts, cluster, 1000, 70_000)
    assert not contacts.is_present(W)
    assert not contacts.is_present(WorkerId("forgotten"))


def test_a_worker_that_was_forgotten_and_speaks_is_followed_again(cluster, contacts):
    new = WorkerId("new")
    contacts.begin(new, 0)
    for now_ms in range(1000, 70_000, 1000):
        contacts.heard(W, now_ms)
        contacts.look(cluster.view, now_ms)
    assert not contacts.heard(new, 70_000)
    assert contacts.is_present(new)
