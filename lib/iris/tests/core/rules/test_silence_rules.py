from collections.abc import Iterable

import pytest

from iris.domain.effects import Effect, JobSettled, StopAttempt, WithdrawAttempt
from iris.domain.entities import LostAttempt
from iris.domain.events import (
    AttemptFenced,
    AttemptObserved,
    Event,
    WorkerCordoned,
    WorkerDisconnected,
    WorkerGone,
    WorkerHeard,
    WorkerLate,
    WorkerLost,
)
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.resources import Device
from iris.domain.states import JobState, TaskState
from rigging.errors import Conflict, NotFound
from support.iris.scheduling import InMemoryCluster, resources

W, V = WorkerId("w"), WorkerId("v")
GPU = Device("gpu", "H100", 1)
EXCLUSIVE = {"exclusive": True, "fence_after_ms": 600_000}


def seen(name: str, state: TaskState, worker_id: WorkerId = W) -> AttemptObserved:
    return AttemptObserved(AttemptId(name), worker_id, state)


def withdrawn(effects: Iterable[Effect]) -> list[str]:
    return [effect.attempt_id for effect in effects if isinstance(effect, WithdrawAttempt)]


@pytest.fixture
def two(cluster: InMemoryCluster) -> InMemoryCluster:
    """A job of two tasks is on w, of which one runs and one was never acknowledged; v has joined since."""
    cluster.launch(replicas=2)
    cluster.observe("/u/job/0:0", TaskState.RUNNING)
    cluster.connect("v", resources(4, 16, 100))
    return cluster


class TestLate:
    def test_what_was_never_acknowledged_goes_elsewhere_at_once_and_free_of_charge(self, two):
        outcome = two.do(WorkerLate(W, 10_000))
        assert withdrawn(outcome.effects) == ["/u/job/1:0"]
        assert two.task("/u/job/0").state is TaskState.RUNNING
        two.schedule()
        moved = two.task("/u/job/1")
        assert (moved.worker_id, moved.attempt, moved.preemptions) == (V, 1, 0)
        assert moved.causes == ("attempt 0 on w: never acknowledged by its worker, which was not heard for 10 s",)
        assert two.view.lost == {"/u/job/1:0": LostAttempt(JobId("/u/job"), W, resources(), may_return=True)}

    def test_nothing_new_goes_there_until_it_is_heard(self, two):
        two.do(WorkerLate(W, 10_000))
        two.do(WorkerDisconnected(V, "a"))
        two.submit("/u/b")
        assert two.schedule().reasons["/u/b"] == "no worker takes work; not heard for two heartbeats: w"
        two.do(WorkerHeard(W))
        two.schedule()
        assert two.task("/u/b/0").worker_id == W

    def test_a_start_that_never_ran_is_remembered_until_it_is_handed_back(self, two):
        two.observe("/u/job/1:0", TaskState.RUNNING)
        two.submit("/u/next")
        two.schedule()
        start = two.task("/u/next/0").attempt_id
        two.do(WorkerLate(two.task("/u/next/0").worker_id, 10_000))
        assert list(two.view.lost) == [start]
        two.do(seen(start, TaskState.PENDING, two.view.lost[start].worker_id))
        assert not two.view.lost

    @pytest.mark.parametrize("had_begun", [False, True])
    def test_nothing_takes_the_place_of_a_superseded_start_until_its_withdrawal_is_answered(self, cluster, had_begun):
        """The worker reads orders one after the other: what is assigned too early would begin beside the start."""
        cluster.launch("/u/old", resources(2), replicas=2)
        cluster.do(WorkerLate(W, 10_000))
        cluster.do(WorkerHeard(W))
        assert not cluster.schedule().assignments, "the successors, too, would begin beside what they come after"
        cluster.do(seen("/u/old/0:0", TaskState.RUNNING if had_begun else TaskState.PENDING))
        cluster.schedule()
        first = cluster.task("/u/old/0")
        assert (first.worker_id, first.attempt) == (W, 0 if had_begun else 1), "what had begun has its task back"
        cluster.do(seen("/u/old/1:0", TaskState.PENDING))
        cluster.schedule()
        assert cluster.task("/u/old/1").worker_id == W

    @pytest.mark.parametrize("has_session", [True, False])
    def test_a_superseded_start_holds_up_no_other_worker_once_its_own_is_heard(self, two, has_session):
        """One that leaves is heard without being connected: it is asked when it is back."""
        if not has_session:
            two.do(WorkerDisconnected(W, "a"))
        two.do(WorkerLate(W, 10_000))
        two.do(WorkerHeard(W))
        assert list(two.view.lost) == ["/u/job/1:0"]
        assert ("/u/job/1:0" in two.view.bookings) == has_session
        two.do(WorkerCordoned(W, "bad fan"))
        two.schedule()
        assert (two.task("/u/job/1").worker_id, two.task("/u/job/1").attempt) == (V, 1)
        two.reconnect(W, "a", [seen("/u/job/0:0", TaskState.RUNNING)])
        assert (two.view.lost, "/u/job/1:0" in two.view.bookings) == ({}, False)

    @pytest.mark.parametrize("is_stopped", [True, False])
    def test_the_end_of_a_job_does_not_wait_for_a_start_that_was_never_acknowledged(self, cluster, is_stopped):
        cluster.launch()
        cluster.connect("v", resources(4, 16, 100))
        cluster.do(WorkerLate(W, 10_000))
        cluster.schedule()
        cluster.observe("/u/job/0:1", TaskState.RUNNING)
        if is_stopped:
            cluster.stop("/u/job")
        outcome = cluster.observe("/u/job/0:1", TaskState.KILLED if is_stopped else TaskState.SUCCEEDED)
        assert JobSettled(JobId("/u/job")) in outcome.effects
        assert list(cluster.view.lost) == ["/u/job/0:0"]

    def test_a_gang_is_not_held_up_by_a_start_that_was_never_acknowledged(self, cluster):
        for name in ("c0", "c1", "c2"):
            cluster.connect(name, resources(1, 16), pool="c")
        cluster.launch(replicas=2, coscheduling_group_by="pool")
        cluster.do(WorkerLate(cluster.task("/u/job/1").worker_id, 10_000))
        cluster.observe("/u/job/0:0", TaskState.KILLED)
        cluster.schedule()
        assert {cluster.task(f"/u/job/{index}").attempt for index in (0, 1)} == {1}

    def test_it_counts_once_and_only_for_workers_that_are_known(self, two):
        two.do(WorkerLate(W, 10_000))
        removed = WorkerId("removed")
        for event in (WorkerLate(W, 11_000), WorkerLate(removed, 11_000), WorkerHeard(V), WorkerHeard(removed)):
            outcome = two.do(event)
            assert (bool(outcome.changes), outcome.effects) == (False, ())

    def test_each_that_was_never_acknowledged_goes_elsewhere_whatever_is_beside_it(self, cluster):
        """On the worker are, in this order: one that stops, an exclusive one, one that runs, and two new ones."""
        for name, fields in (("stops", {}), ("holds", EXCLUSIVE), ("runs", {}), ("new", {"replicas": 2})):
            cluster.submit(f"/u/{name}", resources(0.5), **fields)
        cluster.schedule()
        cluster.observe("/u/runs/0:0", TaskState.RUNNING)
        cluster.stop("/u/stops")
        outcome = cluster.do(WorkerLate(W, 10_000))
        assert withdrawn(outcome.effects) == ["/u/new/0:0", "/u/new/1:0"]
        states = [cluster.task(f"/u/{name}/0").state for name in ("holds", "runs", "new")]
        assert states == [TaskState.ASSIGNED, TaskState.RUNNING, TaskState.PENDING]


@pytest.mark.parametrize(
    ("events", "is_connected", "is_late", "seen_at_ms"),
    [
        ([(100_000, WorkerLate(W, 10_000))], True, True, 90_000),
        ([(100_000, WorkerLost(W, "its host is gone"))], False, False, 100_000),
        ([(100_000, WorkerLate(W, 10_000)), (200_000, WorkerLost(W, "not heard"))], False, False, 90_000),
        ([(100_000, WorkerLate(W, 10_000)), (200_000, WorkerDisconnected(W, "a"))], False, True, 90_000),
        ([(100_000, WorkerDisconnected(W, "a")), (200_000, WorkerLost(W, "not heard"))], False, False, 100_000),
        ([(100_000, WorkerLate(W, 10_000)), (200_000, WorkerHeard(W))], True, False, 200_000),
    ],
)
def test_a_worker_was_seen_when_it_was_heard_last_or_until_it_left(
    cluster: InMemoryCluster, events: list[tuple[int, Event]], is_connected: bool, is_late: bool, seen_at_ms: int
) -> None:
    for now_ms, event in events:
        cluster.now_ms = now_ms
        cluster.do(event)
    worker = cluster.view.workers[W]
    assert (worker.connected, worker.is_late, worker.last_seen_at_ms) == (is_connected, is_late, seen_at_ms)
    assert worker.is_open is (is_connected and not is_late)


class TestLost:
    def test_what_is_given_up_is_remembered_until_the_worker_says_what_it_has(self, two):
        two.do(WorkerLost(W, "not heard"))
        assert set(two.view.lost) == {"/u/job/0:0", "/u/job/1:0"}
        result = two.reconnect("w", "a", [seen("/u/job/0:0", TaskState.RUNNING)])
        assert (result.to_start, dict(two.view.lost)) == ([], {})

    def test_it_is_remembered_over_a_restart_of_the_controller(self, two, restarted):
        two.do(WorkerLost(W, "not heard"))
        view = restarted(two.view)
        assert view.lost == two.view.lost
        assert view.lost_on(W) == view.lost_of(JobId("/u/job")) == list(two.view.lost)
        assert view.lost_on(V) == []

    def test_what_runs_on_although_its_job_is_no_more_takes_its_place(self, two):
        """The job's name was used again, for fewer tasks of another size, while the worker was away."""
        two.observe("/u/job/1:0", TaskState.RUNNING)
        two.do(WorkerLost(W, "not heard"))
        two.stop("/u/job")
        two.submit(need=resources(0.1))
        two.reconnect("w", "a", [seen("/u/job/1:0", TaskState.RUNNING)])
        assert two.view.committed(W).cpu_millis == 1000
        assert StopAttempt in [type(effect) for effect in two.effects[-1:]]
        two.observe("/u/job/1:0", TaskState.KILLED, worker_id=W)
        assert two.view.committed(W).cpu_millis == 0

    def test_only_what_was_on_its_way_out_there_is_given_up_with_it(self, cluster):
        cluster.connect("v", resources(1, 16, 100))
        cluster.submit("/u/stops", resources(1))
        cluster.submit("/u/other", resources(4))
        cluster.launch("/u/holds", resources(1), **EXCLUSIVE)
        on_w = [name for name in ("stops", "other", "holds") if cluster.task(f"/u/{name}/0").worker_id == W]
        for name in on_w:
            cluster.observe(f"/u/{name}/0:0", TaskState.RUNNING)
        cluster.do(WorkerLost(V, "not heard"))
        assert {cluster.task(f"/u/{name}/0").state for name in on_w} == {TaskState.RUNNING}
        assert not any(cluster.view.bookings[f"/u/{name}/0:0"].stopping for name in on_w)


class TestExclusive:
    @pytest.fixture
    def silent(self, cluster: InMemoryCluster) -> InMemoryCluster:
        """An exclusive job runs on w, which is lost; v is there."""
        cluster.launch(**EXCLUSIVE)
        cluster.observe("/u/job/0:0", TaskState.RUNNING)
        cluster.connect("v", resources(4, 16, 100))
        cluster.do(WorkerDisconnected(W, "a"))
        cluster.do(WorkerLost(W, "not heard"))
        return cluster

    def test_it_is_not_given_up_with_its_worker_and_starts_elsewhere_after_its_fence(self, silent):
        silent.schedule()
        assert (silent.task().state, silent.task().attempt, silent.task().worker_id) == (TaskState.RUNNING, 0, W)
        assert not silent.view.lost
        outcome = silent.do(AttemptFenced(AttemptId("/u/job/0:0"), "no contact for 611 s"))
        # A frozen worker may have its start still before it, in the session that is open.
        assert outcome.effects[0] == StopAttempt(AttemptId("/u/job/0:0"), W, "no contact for 611 s")
        silent.schedule()
        task = silent.task()
        assert (task.worker_id, task.attempt, task.preemptions) == (V, 1, 1)
        assert task.causes == ("attempt 0 on w: no contact for 611 s",)
        assert not silent.view.lost

    @pytest.mark.parametrize(
        ("instance", "inventory", "state", "attempt", "worker"),
        [
            ("", [], TaskState.ASSIGNED, 1, V),  # its host is known to be gone
            ("a", [seen("/u/job/0:0", TaskState.RUNNING)], TaskState.RUNNING, 0, W),
            ("b", [], TaskState.ASSIGNED, 1, W),
        ],
    )
    def test_it_goes_on_when_its_worker_comes_back_with_it_and_starts_again_when_it_is_gone(
        self, silent, instance, inventory, state, attempt, worker
    ):
        if instance:
            silent.do(WorkerCordoned(V, "not this one"))
            silent.reconnect("w", instance, inventory)
        else:
            silent.do(WorkerGone(W, "says an operator"))
        silent.schedule()
        task = silent.task()
        assert (task.state, task.attempt, task.worker_id) == (state, attempt, worker)

    def test_a_stopped_one_holds_the_next_of_its_name_until_the_fence(self, silent):
        silent.stop("/u/job")
        assert not silent.view.is_settled("/u/job")
        silent.submit(**EXCLUSIVE)
        assert silent.schedule().reasons["/u/job"] == "waits for 1 earlier attempt to end"
        silent.do(WorkerLost(W, "still not heard"))
        silent.schedule()
        assert silent.task().state is TaskState.PENDING
        silent.do(AttemptFenced(AttemptId("/u/job/0:0"), "no contact for 611 s"))
        silent.schedule()
        assert silent.task().worker_id == V

    def test_a_fence_of_what_has_ended_changes_nothing(self, silent):
        silent.reconnect("w", "a", [seen("/u/job/0:0", TaskState.SUCCEEDED)])
        assert not silent.do(AttemptFenced(AttemptId("/u/job/0:0"), "no contact")).changes
        assert silent.job().state is JobState.SUCCEEDED


class TestGangOnAccelerators:
    @pytest.fixture
    def gang(self, cluster: InMemoryCluster) -> InMemoryCluster:
        for name in ("g0", "g1", "h0", "h1"):
            cluster.connect(name, resources(4, 16, 100, GPU), pool=name[0])
        cluster.launch(need=resources(1, 1, 0, GPU), replicas=2, coscheduling_group_by="pool", max_retries_failure=1)
        for index in (0, 1):
            cluster.observe(f"/u/job/{index}:0", TaskState.RUNNING)
        return cluster

    @staticmethod
    def states(cluster: InMemoryCluster) -> list[TaskState]:
        return [cluster.task(f"/u/job/{index}").state for index in (0, 1)]

    @staticmethod
    def lose(cluster: InMemoryCluster) -> WorkerId:
        host = cluster.task().worker_id
        cluster.do(WorkerLate(host, 10_000))
        cluster.do(WorkerDisconnected(host, "a"))
        cluster.do(WorkerLost(host, "not heard"))
        return host

    @pytest.mark.parametrize("is_back", [False, True])
    def test_it_is_restarted_by_no_clock_but_when_a_host_is_gone_or_back_without_it(self, gang, is_back):
        host = self.lose(gang)
        assert self.states(gang) == [TaskState.RUNNING] * 2
        if is_back:
            gang.reconnect(host, "b", [])
        else:
            gang.do(WorkerGone(host, "says an operator"))
        assert self.states(gang) == [TaskState.PENDING] * 2

    def test_its_next_round_waits_for_the_silent_host(self, gang):
        """Task 1 fails while the host of task 0 is silent: the process there may still hold what the round needs."""
        host = self.lose(gang)
        gang.observe("/u/job/1:0", TaskState.FAILED, exit_code=1)
        assert self.states(gang) == [TaskState.PENDING] * 2
        assert gang.schedule().reasons["/u/job"] == "waits for 1 earlier attempt to end"
        gang.do(WorkerGone(host, "says an operator"))
        gang.schedule()
        assert self.states(gang) == [TaskState.ASSIGNED] * 2

    def test_a_gang_without_accelerators_is_given_up_as_any_other(self, cluster):
        for name in ("c0", "c1"):
            cluster.connect(name, resources(1, 16), pool="c")
        cluster.launch(replicas=2, coscheduling_group_by="pool")
        cluster.do(WorkerLost(cluster.task().worker_id, "not heard"))
        assert cluster.task().state is TaskState.PENDING


def test_everything_on_a_host_that_is_gone_is_over(two):
    two.do(WorkerLost(W, "not heard"))
    assert two.view.lost
    two.do(WorkerGone(W, "says an operator"))
    assert not two.view.lost, "what was given up there, too"
    two.schedule()
    two.do(WorkerDisconnected(V, "a"))
    two.stop("/u/job")
    two.do(WorkerGone(V, "says an operator"))
    assert two.view.is_settled("/u/job")
    assert not list(two.view.attempts_on(V))


def test_of_what_no_loss_is_believed(two):
    with pytest.raises(Conflict, match="worker w is connected, so its host is not gone"):
        two.do(WorkerGone(W, "says an operator"))
    two.do(WorkerLate(W, 10_000))
    with pytest.raises(Conflict, match="worker w is connected, though late, so its host is not gone"):
        two.do(WorkerGone(W, "says an operator"))
    for event in (WorkerGone(WorkerId("x"), "says an operator"), WorkerLost(WorkerId("x"), "not seen")):
        with pytest.raises(NotFound, match="worker x does not exist"):
            two.do(event)
