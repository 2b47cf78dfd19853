import pytest

from iris.core.rules.contact import ContactRules, Contacts
from iris.domain.events import AttemptFenced, Event, WorkerCordoned, WorkerHeard, WorkerLate, WorkerLost
from iris.domain.ids import WorkerId
from iris.domain.states import TaskState
from support.iris.scheduling import InMemoryCluster, resources

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


def test_time_in_which_the_controller_itself_stood_still_is_nobodys_silence_until_it_has_read(contacts, cluster):
    """What workers said meanwhile has not been read yet; once it would have been, it was silence."""
    cluster.launch("/u/a", exclusive=True, fence_after_ms=20_000)
    watch(contacts, cluster, 1000, 8000)
    assert not contacts.look(cluster.view, 98_000)
    watch(contacts, cluster, 99_000, 105_000)
    contacts.look(cluster.view, 205_000)
    assert contacts.silent_ms(W, 205_000) == 15_000
    found = watch(contacts, cluster, 206_000, 224_000)
    assert [(at_ms, type(event)) for at_ms, event in found] == [(208_000, WorkerLost), (208_000, AttemptFenced)]
    assert contacts.silent_ms(W, 224_000) == 224_000


def test_one_pause_leaves_workers_all_the_time_to_come_back(contacts, cluster):
    watch(contacts, cluster, 1000, 9000)
    contacts.look(cluster.view, 109_000)
    found = watch(contacts, cluster, 110_000, 120_000)
    assert [(at_ms, type(event)) for at_ms, event in found] == [(110_000, WorkerLate), (119_000, WorkerLost)]


def test_pauses_again_and_again_do_not_hide_a_silence(contacts, cluster):
    now_ms = 0
    for _ in range(8):  # it runs for 4 s of every 16
        watch(contacts, cluster, now_ms + 1000, now_ms + 4000)
        now_ms += 16_000
        contacts.look(cluster.view, now_ms)
    assert watch(contacts, cluster, now_ms + 1000, now_ms + 3000) == []
    assert not contacts.is_present(W)
    assert contacts.silent_ms(W, now_ms + 3000) == 131_000


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


def fleet(cluster: InMemoryCluster, contacts: Contacts, count: int, slices: int = 0) -> list[WorkerId]:
    names = [WorkerId(f"h{number}") for number in range(count)]
    for number, name in enumerate(names):
        attributes = {"tpu-name": f"s{number % slices}"} if slices else {}
        cluster.connect(name, resources(4), **attributes)
        contacts.begin(name, 0)
    return names


def played(
    contacts: Contacts, cluster: InMemoryCluster, silent_from: dict[WorkerId, int], end_ms: int
) -> list[tuple[int, str]]:
    """Every host speaks every 5 s until it falls silent; return who is lost, and when."""
    found = []
    for now_ms in range(1000, end_ms + 1, 1000):
        for name in cluster.view.workers:
            if name != W and now_ms % 5000 == 0 and now_ms <= silent_from.get(name, end_ms):
                contacts.heard(name, now_ms)
        for event in contacts.look(cluster.view, now_ms):
            cluster.do(event)
            if isinstance(event, WorkerLost):
                found.append((now_ms // 1000, event.worker_id))
    return found


@pytest.mark.parametrize(
    ("count", "slices", "silent", "lost_at"),
    [
        pytest.param(4, 0, {0: 10, 1: 10}, {311 + 9}, id="half"),
        pytest.param(6, 0, {0: 10, 1: 20, 2: 40}, {350}, id="within 30 s"),
        pytest.param(6, 0, {0: 10, 1: 30, 2: 60}, {70, 90, 120}, id="one after the other"),
        pytest.param(5, 0, {0: 10, 1: 10}, {70}, id="less than half"),
        pytest.param(2, 0, {0: 10, 1: 10}, {70}, id="too few to tell"),
        pytest.param(6, 3, {0: 10, 3: 10}, {70}, id="one slice of three"),
        pytest.param(6, 3, {0: 10, 3: 10, 1: 10, 4: 10}, {320}, id="two slices of three"),
    ],
)
def test_hosts_that_fall_silent_together_are_not_lost_until_the_patience_is_over(
    cluster: InMemoryCluster, count: int, slices: int, silent: dict[int, int], lost_at: set[int]
) -> None:
    contacts = Contacts(RULES, 0)
    names = fleet(cluster, contacts, count, slices)
    found = played(contacts, cluster, {names[index]: at_s * 1000 for index, at_s in silent.items()}, 400_000)
    assert {at_s for at_s, _ in found} == lost_at
    assert {name for _, name in found} == {names[index] for index in silent}
    assert contacts.suspicion is None


def test_one_that_is_back_ends_the_suspicion_and_gives_the_others_their_time(cluster: InMemoryCluster) -> None:
    contacts = Contacts(RULES, 0)
    a, b, c = fleet(cluster, contacts, 3)
    assert not played(contacts, cluster, dict.fromkeys((a, b), 5000), 100_000)
    assert contacts.suspicion is not None
    assert contacts.suspicion.hosts == {a, b}
    lost = []
    for now_ms in range(101_000, 200_000, 1000):
        for name in (a, c):
            contacts.heard(name, now_ms)
        events = contacts.look(cluster.view, now_ms)
        lost += [(now_ms, event.worker_id) for event in events if isinstance(event, WorkerLost)]
    assert lost == [(151_000, b)]


@pytest.mark.parametrize("how", ["goodbye", "drained"])
def test_hosts_that_are_meant_to_go_do_not_count(cluster: InMemoryCluster, how: str) -> None:
    contacts = Contacts(RULES, 0)
    names = fleet(cluster, contacts, 4)
    for name in names[:2]:
        if how == "goodbye":
            contacts.left(name)
        else:
            cluster.do(WorkerCordoned(name, "new disks"))
    assert {at_s for at_s, _ in played(contacts, cluster, dict.fromkeys(names[:2], 5000), 100_000)} == {65}


def test_what_they_did_not_acknowledge_stays(cluster: InMemoryCluster) -> None:
    contacts = Contacts(RULES, 0)
    names = fleet(cluster, contacts, 3)
    cluster.do(WorkerCordoned(W, "not this one"))
    cluster.launch("/u/a")
    host = cluster.task("/u/a/0").worker_id
    assert host in names
    played(contacts, cluster, dict.fromkeys(names, 5000), 100_000)
    assert cluster.task("/u/a/0").state is TaskState.ASSIGNED
