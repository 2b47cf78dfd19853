"""Workers that are late, lost, or known to be gone; what an exclusive job and a gang on accelerators make of it."""

import pytest

from iris.core.state.view import ClusterView
from iris.domain.effects import JobSettled, StopAttempt
from iris.domain.entities import LostAttempt
from iris.domain.events import (
    Assigned,
    AttemptFenced,
    AttemptObserved,
    WorkerCordoned,
    WorkerDisconnected,
    WorkerGone,
    WorkerHeard,
    WorkerLate,
    WorkerLost,
)
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId
from iris.domain.resources import Device
from iris.domain.states import JobState, TaskState
from iris.testing.scheduling import InMemoryCluster, resources
from rigging.errors import Conflict, NotFound

W, V = WorkerId("w"), WorkerId("v")
GPU = Device("gpu", "H100", 1)
EXCLUSIVE = {"exclusive": True, "fence_after_ms": 600_000}


def seen(name: str, state: TaskState, worker_id: WorkerId = W) -> AttemptObserved:
    return AttemptObserved(AttemptId(name), worker_id, state)


@pytest.fixture
def two(cluster: InMemoryCluster) -> InMemoryCluster:
    """A job of two tasks is on w, of which one runs and one was never acknowledged; v has joined since."""
    cluster.submit(replicas=2)
    cluster.schedule()
    cluster.observe("/u/job/0:0", TaskState.RUNNING)
    cluster.connect("v", resources(4, 16, 100))
    return cluster


class TestLate:
    def test_what_was_never_acknowledged_goes_elsewhere_at_once_and_free_of_charge(self, two):
        outcome = two.do(WorkerLate(W, 10_000))
        assert [e.attempt_id for e in outcome.effects if isinstance(e, StopAttempt)] == ["/u/job/1:0"]
        assert two.task("/u/job/0").state is TaskState.RUNNING
        two.schedule()
        moved = two.task("/u/job/1")
        assert (moved.worker_id, moved.attempt, moved.preemptions) == (V, 1, 0)
        assert moved.causes == ("attempt 0 on w: never acknowledged by its worker, which was not heard for 10 s",)
        assert two.view.lost == {"/u/job/1:0": LostAttempt(JobId("/u/job"), W, resources())}

    def test_nothing_new_goes_there_until_it_is_heard(self, two):
        two.do(WorkerLate(W, 10_000))
        two.do(WorkerDisconnected(V, "a"))
        two.submit("/u/b")
        assert two.schedule().reasons["/u/b"] == "no worker takes work; not heard for two heartbeats: w"
        with pytest.raises(Conflict, match="worker w was not heard for two heartbeats"):
            two.do(Assigned(TaskId("/u/b/0"), W))
        two.do(WorkerHeard(W))
        two.schedule()
        assert two.task("/u/b/0").worker_id == W

    def test_a_worker_that_was_removed_meanwhile_is_neither_late_nor_heard(self, two):
        for event in (WorkerLate(WorkerId("removed"), 10_000), WorkerHeard(WorkerId("removed"))):
            assert two.do(event).effects == ()
        assert set(two.view.workers) == {W, V}

    def test_a_job_that_ended_elsewhere_does_not_wait_for_the_late_worker(self, cluster):
        cluster.submit()
        cluster.schedule()
        cluster.connect("v", resources(4, 16, 100))
        cluster.do(WorkerLate(W, 10_000))
        cluster.schedule()
        outcome = cluster.observe("/u/job/0:1", TaskState.SUCCEEDED)
        assert JobSettled(JobId("/u/job")) in outcome.effects

    def test_a_superseded_start_that_runs_after_all_is_stopped_and_accounted_for(self, two):
        two.do(WorkerLate(W, 10_000))
        two.schedule()
        two.effects.clear()
        two.reconnect(W, "a", [seen("/u/job/0:0", TaskState.RUNNING), seen("/u/job/1:0", TaskState.RUNNING)])
        assert [effect.attempt_id for effect in two.effects if isinstance(effect, StopAttempt)] == ["/u/job/1:0"]
        assert two.view.bookings["/u/job/1:0"].found
        assert not two.view.lost
        two.do(seen("/u/job/1:0", TaskState.KILLED))
        assert "/u/job/1:0" not in two.view.bookings
        assert two.task("/u/job/1").attempt == 1

    def test_a_superseded_start_that_never_ran_is_remembered_no_more(self, two):
        two.do(WorkerLate(W, 10_000))
        two.do(seen("/u/job/1:0", TaskState.KILLED))
        assert not two.view.lost

    @pytest.mark.parametrize("had_begun", [False, True])
    def test_nothing_takes_the_place_of_a_superseded_start_until_its_worker_has_answered_the_stop(
        self, cluster, had_begun
    ):
        """The worker reads starts and stops in their order: what is assigned too early would begin beside those."""
        cluster.submit("/u/old", resources(2), replicas=2)
        cluster.schedule()
        cluster.do(WorkerLate(W, 10_000))
        cluster.do(WorkerHeard(W))
        assert not cluster.view.lost
        assert not cluster.schedule().assignments, "the successors, too, would begin beside what they come after"
        if had_begun:
            assert not cluster.do(seen("/u/old/0:0", TaskState.RUNNING)).effects, "the stop is on its way"
        cluster.do(seen("/u/old/0:0", TaskState.KILLED))
        cluster.schedule()
        assert [cluster.task(f"/u/old/{index}").worker_id for index in (0, 1)] == [W, None]
        cluster.do(seen("/u/old/1:0", TaskState.KILLED))
        cluster.schedule()
        assert cluster.task("/u/old/1").worker_id == W

    def test_a_superseded_start_holds_up_no_other_worker_once_its_own_is_heard(self, two):
        two.do(WorkerLate(W, 10_000))
        two.do(WorkerHeard(W))
        two.do(WorkerCordoned(W, "bad fan"))
        two.schedule()
        assert (two.task("/u/job/1").worker_id, two.task("/u/job/1").attempt) == (V, 1)

    def test_a_worker_without_a_session_is_asked_when_it_has_one(self, two):
        """One that leaves is heard without being connected; no answer may ever come."""
        two.do(WorkerDisconnected(W, "a"))
        two.do(WorkerLate(W, 10_000))
        two.do(WorkerHeard(W))
        assert list(two.view.lost) == ["/u/job/1:0"]
        two.reconnect(W, "a", [seen("/u/job/0:0", TaskState.RUNNING)])
        assert (two.view.lost, "/u/job/1:0" in two.view.bookings) == ({}, False)

    def test_stopping_a_job_does_not_wait_for_a_start_that_was_never_acknowledged(self, cluster):
        cluster.submit()
        cluster.schedule()
        cluster.do(WorkerDisconnected(W, "a"))
        cluster.do(WorkerLate(W, 10_000))
        assert cluster.task().state is TaskState.PENDING
        outcome = cluster.stop("/u/job")
        assert JobSettled(JobId("/u/job")) in outcome.effects
        assert list(cluster.view.lost) == ["/u/job/0:0"]

    def test_a_gang_is_not_held_up_by_a_start_that_was_never_acknowledged(self, cluster):
        for name in ("c0", "c1", "c2"):
            cluster.connect(name, resources(1, 16), pool="c")
        cluster.submit(replicas=2, coscheduling_group_by="pool")
        cluster.schedule()
        cluster.do(WorkerLate(cluster.task("/u/job/1").worker_id, 10_000))
        cluster.observe("/u/job/0:0", TaskState.KILLED)
        cluster.schedule()
        assert {cluster.task(f"/u/job/{index}").attempt for index in (0, 1)} == {1}

    def test_an_exclusive_start_may_have_arrived_and_stays(self, cluster):
        cluster.submit(**EXCLUSIVE)
        cluster.schedule()
        cluster.connect("v", resources(4, 16, 100))
        cluster.do(WorkerLate(W, 10_000))
        cluster.schedule()
        assert (cluster.task().state, cluster.task().worker_id) == (TaskState.ASSIGNED, W)

    def test_it_counts_once_and_only_for_workers_that_are_known(self, two):
        two.do(WorkerLate(W, 10_000))
        assert not two.do(WorkerLate(W, 11_000)).changes
        assert not two.do(WorkerLate(WorkerId("x"), 11_000)).changes
        assert not two.do(WorkerHeard(V)).changes

    def test_when_it_was_seen_last_is_when_it_was_heard_last(self, cluster):
        cluster.now_ms = 100_000
        cluster.do(WorkerLate(W, 10_000))
        assert cluster.view.workers[W].last_seen_at_ms == 90_000
        cluster.do(WorkerDisconnected(W, "a"))
        cluster.do(WorkerLost(W, "not heard"))
        assert cluster.view.workers[W].last_seen_at_ms == 90_000

    def test_each_that_was_never_acknowledged_goes_elsewhere_whatever_is_beside_it(self, cluster):
        """On the worker are, in this order: one that stops, an exclusive one, one that runs, and two new ones."""
        for name, fields in (("stops", {}), ("holds", EXCLUSIVE), ("runs", {}), ("new", {"replicas": 2})):
            cluster.submit(f"/u/{name}", resources(0.5), **fields)
        cluster.schedule()
        cluster.observe("/u/runs/0:0", TaskState.RUNNING)
        cluster.stop("/u/stops")
        outcome = cluster.do(WorkerLate(W, 10_000))
        stopped = [effect.attempt_id for effect in outcome.effects if isinstance(effect, StopAttempt)]
        assert stopped == ["/u/new/0:0", "/u/new/1:0"]
        assert {name: cluster.task(f"/u/{name}/0").state for name in ("holds", "runs", "new")} == {
            "holds": TaskState.ASSIGNED,
            "runs": TaskState.RUNNING,
            "new": TaskState.PENDING,
        }


class TestWhenItWasSeen:
    def test_one_that_is_lost_while_it_is_connected_was_seen_until_now(self, cluster):
        cluster.now_ms = 100_000
        cluster.do(WorkerLost(W, "its host is gone"))
        worker = cluster.view.workers[W]
        assert (worker.connected, worker.is_late, worker.last_seen_at_ms) == (False, False, 100_000)

    def test_one_that_was_late_before_was_seen_when_it_was_heard_last(self, cluster):
        cluster.now_ms = 100_000
        cluster.do(WorkerLate(W, 10_000))
        cluster.now_ms = 200_000
        cluster.do(WorkerLost(W, "not heard"))
        worker = cluster.view.workers[W]
        assert (worker.connected, worker.is_late, worker.last_seen_at_ms) == (False, False, 90_000)

    def test_one_that_left_in_order_stays_as_it_was(self, cluster):
        cluster.now_ms = 100_000
        cluster.do(WorkerDisconnected(W, "a"))
        seen_at = cluster.view.workers[W].last_seen_at_ms
        cluster.now_ms = 200_000
        assert not cluster.do(WorkerLost(W, "not heard")).changes
        assert cluster.view.workers[W].last_seen_at_ms == seen_at

    def test_one_that_is_heard_again_is_used_and_seen_now(self, cluster):
        cluster.do(WorkerLate(W, 10_000))
        cluster.now_ms = 200_000
        cluster.do(WorkerHeard(W))
        worker = cluster.view.workers[W]
        assert (worker.is_late, worker.is_open, worker.last_seen_at_ms) == (False, True, 200_000)


class TestLost:
    def test_what_is_given_up_is_remembered_until_the_worker_says_what_it_has(self, two):
        two.do(WorkerLost(W, "not heard"))
        assert set(two.view.lost) == {"/u/job/0:0", "/u/job/1:0"}
        two.effects.clear()
        result = two.reconnect("w", "a", [seen("/u/job/0:0", TaskState.RUNNING)])
        assert not two.view.lost
        assert (result.to_start, two.view.bookings["/u/job/0:0"].found) == ([], True)
        assert [effect.attempt_id for effect in two.effects if isinstance(effect, StopAttempt)] == ["/u/job/0:0"]

    def test_an_attempt_told_to_stop_is_given_up_too(self, cluster):
        cluster.submit()
        cluster.schedule()
        cluster.observe("/u/job/0:0", TaskState.RUNNING)
        cluster.stop("/u/job")
        assert not cluster.view.is_settled("/u/job")
        cluster.do(WorkerLost(W, "not heard"))
        assert cluster.view.is_settled("/u/job")
        assert list(cluster.view.lost) == ["/u/job/0:0"]

    def test_it_is_remembered_over_a_restart_of_the_controller(self, two):
        two.do(WorkerLost(W, "not heard"))
        tasks = [task for of_job in two.view.tasks.values() for task in of_job]
        view = ClusterView.load(two.view.jobs.values(), tasks, two.view.workers.values(), lost=two.view.lost.items())
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
        cluster.submit("/u/holds", resources(1), **EXCLUSIVE)
        cluster.schedule()
        on_w = [name for name in ("stops", "other", "holds") if cluster.task(f"/u/{name}/0").worker_id == W]
        for name in on_w:
            cluster.observe(f"/u/{name}/0:0", TaskState.RUNNING)
        cluster.do(WorkerLost(V, "not heard"))
        assert {cluster.task(f"/u/{name}/0").state for name in on_w} == {TaskState.RUNNING}
        assert not any(cluster.view.bookings[f"/u/{name}/0:0"].stopping for name in on_w)

    def test_an_unknown_worker(self, cluster):
        with pytest.raises(NotFound, match="worker x does not exist"):
            cluster.do(WorkerLost(WorkerId("x"), "not seen"))


class TestExclusive:
    @pytest.fixture
    def silent(self, cluster: InMemoryCluster) -> InMemoryCluster:
        """An exclusive job runs on w, which is lost; v is there."""
        cluster.submit(**EXCLUSIVE)
        cluster.schedule()
        cluster.observe("/u/job/0:0", TaskState.RUNNING)
        cluster.connect("v", resources(4, 16, 100))
        cluster.do(WorkerDisconnected(W, "a"))
        cluster.do(WorkerLost(W, "not heard"))
        return cluster

    def test_it_is_not_given_up_with_its_worker(self, silent):
        silent.schedule()
        assert (silent.task().state, silent.task().attempt, silent.task().worker_id) == (TaskState.RUNNING, 0, W)
        assert not silent.view.lost

    def test_it_starts_elsewhere_after_its_fence(self, silent):
        outcome = silent.do(AttemptFenced(AttemptId("/u/job/0:0"), "no contact for 611 s"))
        # A frozen worker may have its start still before it, in the session that is open.
        assert outcome.effects[0] == StopAttempt(AttemptId("/u/job/0:0"), W, "no contact for 611 s")
        silent.schedule()
        task = silent.task()
        assert (task.worker_id, task.attempt, task.preemptions) == (V, 1, 1)
        assert task.causes == ("attempt 0 on w: no contact for 611 s",)
        assert not silent.view.lost

    def test_it_starts_elsewhere_when_its_host_is_known_to_be_gone(self, silent):
        silent.do(WorkerGone(W, "says an operator"))
        silent.schedule()
        assert silent.task().worker_id == V

    def test_it_goes_on_when_its_worker_comes_back_with_it(self, silent):
        silent.reconnect("w", "a", [seen("/u/job/0:0", TaskState.RUNNING)])
        assert (silent.task().state, silent.task().attempt) == (TaskState.RUNNING, 0)

    def test_it_starts_again_when_its_worker_comes_back_without_it(self, silent):
        silent.reconnect("w", "b", [])
        assert silent.task().state is TaskState.PENDING

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

    def test_a_stopped_start_on_a_late_worker_is_waited_for(self, cluster):
        cluster.submit(**EXCLUSIVE)
        cluster.schedule()
        cluster.do(WorkerLate(W, 10_000))
        cluster.stop("/u/job")
        cluster.do(WorkerLost(W, "not heard"))
        assert not cluster.view.is_settled("/u/job")
        assert not cluster.view.lost

    def test_a_fence_of_what_has_ended_changes_nothing(self, silent):
        silent.reconnect("w", "a", [seen("/u/job/0:0", TaskState.SUCCEEDED)])
        assert not silent.do(AttemptFenced(AttemptId("/u/job/0:0"), "no contact")).changes
        assert silent.job().state is JobState.SUCCEEDED


class TestGangOnAccelerators:
    @pytest.fixture
    def gang(self, cluster: InMemoryCluster) -> InMemoryCluster:
        for name in ("g0", "g1", "h0", "h1"):
            cluster.connect(name, resources(4, 16, 100, GPU), pool=name[0])
        cluster.submit(need=resources(1, 1, 0, GPU), replicas=2, coscheduling_group_by="pool", max_retries_failure=1)
        cluster.schedule()
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

    def test_it_is_not_restarted_by_the_clock(self, gang):
        self.lose(gang)
        assert self.states(gang) == [TaskState.RUNNING] * 2

    def test_it_is_restarted_when_a_host_is_known_to_be_gone(self, gang):
        gang.do(WorkerGone(self.lose(gang), "says an operator"))
        assert self.states(gang) == [TaskState.PENDING] * 2

    def test_it_is_restarted_when_a_host_is_back_without_it(self, gang):
        gang.reconnect(self.lose(gang), "b", [])
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
        cluster.submit(replicas=2, coscheduling_group_by="pool")
        cluster.schedule()
        cluster.do(WorkerLost(cluster.task().worker_id, "not heard"))
        assert cluster.task().state is TaskState.PENDING


class TestGone:
    def test_everything_there_is_over(self, two):
        two.do(WorkerDisconnected(W, "a"))
        two.stop("/u/job")
        two.do(WorkerGone(W, "says an operator"))
        assert two.view.is_settled("/u/job")
        assert not list(two.view.attempts_on(W))

    def test_what_was_given_up_there_is_over_too(self, two):
        two.do(WorkerLost(W, "not heard"))
        assert two.view.lost
        two.do(WorkerGone(W, "says an operator"))
        assert not two.view.lost

    def test_a_connected_worker_is_not_gone(self, two):
        with pytest.raises(Conflict, match="worker w is connected, so its host is not gone"):
            two.do(WorkerGone(W, "says an operator"))

    def test_an_unknown_worker(self, two):
        with pytest.raises(NotFound, match="worker x does not exist"):
            two.do(WorkerGone(WorkerId("x"), "says an operator"))
