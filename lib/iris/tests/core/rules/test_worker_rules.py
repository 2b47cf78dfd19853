import pytest

from iris.core.state import invariants
from iris.domain.effects import ForgetAttempt, StopAttempt
from iris.domain.events import AttemptMissing, AttemptObserved, LendCpu, WorkerDisconnected, WorkerLost
from iris.domain.ids import AttemptId, WorkerId
from iris.domain.resources import NOTHING
from iris.domain.states import JobState, TaskState
from support.iris.scheduling import resources

W = WorkerId("w")


def seen(name: str, state: TaskState) -> AttemptObserved:
    return AttemptObserved(AttemptId(name), W, state)


class TestSessions:
    def test_a_disconnected_worker_keeps_its_tasks_and_gets_no_new_ones(self, cluster):
        cluster.launch("/u/a")
        cluster.do(WorkerDisconnected(W, "a"))
        assert not cluster.view.workers[W].connected
        assert cluster.task("/u/a/0").state is TaskState.ASSIGNED
        cluster.submit("/u/b")
        assert cluster.schedule().reasons == {"/u/b": "no worker is connected (1 known)"}

    def test_a_lost_worker_gives_everything_back(self, cluster):
        cluster.submit("/u/a", max_retries_preemption=0)
        cluster.launch("/u/b")
        cluster.do(WorkerLost(W, "not seen for 60 s"))
        assert cluster.view.committed(W) == NOTHING
        assert cluster.job("/u/a").error == "task 0 lost its worker: worker w: not seen for 60 s"
        assert cluster.job("/u/b").state is JobState.PENDING
        assert cluster.task("/u/b/0").worker_id is None

    def test_one_loss_that_ends_a_job_frees_its_other_tasks_there_too(self, cluster):
        cluster.launch(replicas=3, max_retries_preemption=0)
        outcome = cluster.do(WorkerLost(W, "not seen"))
        assert cluster.job().state is JobState.WORKER_FAILED
        assert cluster.view.is_settled("/u/job")
        assert not [effect for effect in outcome.effects if isinstance(effect, StopAttempt)]

    def test_what_is_unknown_and_the_farewell_of_an_older_instance_change_nothing(self, cluster):
        cluster.connect("w", resources(4, 16), instance="b")
        assert not cluster.do(WorkerDisconnected(W, "a")).changes
        assert cluster.view.workers[W].connected
        nobody = AttemptId("/u/none/0:0")
        for event in (
            WorkerDisconnected(WorkerId("x"), "a"), AttemptMissing(nobody, "gone"), LendCpu(nobody, True),
        ):  # fmt: skip
            assert not cluster.do(event).changes


class TestReconcile:
    def test_the_same_process_keeps_its_tasks_and_gets_what_it_missed_but_what_ran_there(self, cluster):
        cluster.launch(replicas=2)
        cluster.do(WorkerDisconnected(W, "a"))
        result = cluster.reconnect("w", "a", [seen("/u/job/0:0", TaskState.RUNNING)])
        assert (result.to_start, result.to_stop, result.to_forget) == (["/u/job/1:0"], [], [])
        assert cluster.task("/u/job/0").state is TaskState.RUNNING
        assert cluster.reconnect("w", "a", []).to_start == ["/u/job/1:0"]
        assert cluster.task().causes == ("attempt 0 on w: its worker lost it",)

    def test_a_new_process_lost_all_that_it_does_not_report(self, cluster):
        cluster.launch(replicas=2)
        cluster.reconnect("w", "b", [seen("/u/job/0:0", TaskState.RUNNING)])
        assert cluster.task("/u/job/0").state is TaskState.RUNNING
        lost = cluster.task("/u/job/1")
        assert (lost.state, lost.preemptions) == (TaskState.PENDING, 1)
        assert lost.causes == ("attempt 0 on w: its worker restarted",)

    def test_what_ended_meanwhile_is_taken_in_and_forgotten(self, cluster):
        cluster.launch()
        cluster.reconnect("w", "a", [seen("/u/job/0:0", TaskState.SUCCEEDED)])
        assert cluster.job().state is JobState.SUCCEEDED
        assert ForgetAttempt("/u/job/0:0", "w") in cluster.effects

    def test_a_lost_stop_is_repeated_until_the_attempt_is_gone(self, cluster):
        cluster.launch()
        cluster.stop("/u/job")
        result = cluster.reconnect("w", "a", [seen("/u/job/0:0", TaskState.RUNNING)])
        assert (result.to_stop, cluster.view.committed(W).cpu_millis) == (["/u/job/0:0"], 1000)
        cluster.reconnect("w", "a", [])
        assert cluster.view.is_settled("/u/job")

    def test_the_end_of_an_attempt_of_a_task_that_is_no_more_frees_its_place(self, cluster):
        """Its job's name was used again, for fewer tasks; the new one waits for what is left of the old."""
        cluster.launch(replicas=2)
        cluster.stop("/u/job")
        cluster.submit(replicas=1)
        cluster.observe("/u/job/0:0", TaskState.KILLED)
        result = cluster.reconnect("w", "a", [seen("/u/job/1:0", TaskState.KILLED)])
        assert result.to_stop == []
        assert cluster.view.held_counts == {}
        assert cluster.view.committed(W).cpu_millis == 0

    def test_attempts_of_unknown_jobs(self, cluster):
        inventory = [seen("/u/old/0:3", TaskState.RUNNING), seen("/u/old/1:0", TaskState.FAILED)]
        result = cluster.reconnect("w", "a", inventory)
        assert (result.to_stop, result.to_forget, result.events) == (["/u/old/0:3"], ["/u/old/1:0"], [])

    def test_after_a_controller_restart_nothing_is_lost_and_stopping_is_learnt_again(self, cluster, restarted):
        cluster.submit("/u/runs", resources(1))
        cluster.submit("/u/stopped", resources(2))
        cluster.launch("/u/waits", resources(2))
        cluster.observe("/u/runs/0:0", TaskState.RUNNING)
        cluster.stop("/u/stopped")
        cluster.view = restarted(cluster.view, knows_stopping=False)
        cluster.do(WorkerDisconnected(W, "a"))
        inventory = [seen("/u/runs/0:0", TaskState.RUNNING), seen("/u/stopped/0:0", TaskState.RUNNING)]
        cluster.reconnect("w", "a", inventory)
        assert isinstance(cluster.effects[-1], StopAttempt)
        assert cluster.view.committed(W).cpu_millis == 3000
        assert cluster.schedule().reasons == {"/u/waits": "waits for attempts on w to end"}
        cluster.observe("/u/stopped/0:0", TaskState.KILLED)
        assert cluster.schedule().assignments == [("/u/waits/0", "w")]
        cluster.submit("/u/new")
        assert cluster.job("/u/new").sequence == 4


class TestLentCpu:
    @pytest.fixture
    def parent(self, cluster):
        cluster.launch("/u/p", resources(4, 8))
        cluster.submit("/u/p/c", resources(3, 4))
        why = "needs 3 cores; worker w has 0 of 4 free; next expected when a task of /u/p ends"
        assert cluster.schedule().reasons == {"/u/p/c": why}
        return AttemptId("/u/p/0:0")

    def test_a_waiting_parent_lends_its_cpu_and_nothing_else(self, cluster, parent):
        cluster.do(LendCpu(parent, True))
        assert cluster.view.free(W) == resources(4, 8, 100)
        assert cluster.schedule().assignments == [("/u/p/c/0", "w")]

    def test_taking_it_back_may_go_over_and_then_nothing_more_starts(self, cluster, parent):
        cluster.do(LendCpu(parent, True))
        cluster.schedule()
        cluster.do(LendCpu(parent, False))
        assert cluster.view.free(W).cpu_millis == -3000
        cluster.submit("/u/p/d", resources(0.5))
        cluster.submit("/u/p/e", resources(0, 1))
        plan = cluster.schedule()
        why = "needs 0.5 cores; worker w has 0 of 4 free; next expected when a task of /u/p ends"
        assert plan.reasons == {"/u/p/d": why}
        assert plan.assignments == [("/u/p/e/0", "w")]

    def test_waits_are_counted(self, cluster, parent):
        for on in (True, True, False):
            cluster.do(LendCpu(parent, on))
        assert cluster.view.free(W).cpu_millis == 4000
        cluster.do(LendCpu(parent, False))
        assert cluster.view.free(W).cpu_millis == 0
        assert not cluster.do(LendCpu(parent, False)).changes

    def test_a_lending_attempt_that_is_stopped_holds_no_cpu_until_it_has_ended(self, cluster, parent):
        cluster.do(LendCpu(parent, True))
        cluster.stop("/u/p")
        assert cluster.view.committed(W).cpu_millis == 0
        assert not cluster.do(LendCpu(parent, False)).changes
        cluster.observe(parent, TaskState.KILLED)
        assert cluster.view.committed(W) == NOTHING, "it gives back only what it holds"


def test_cpu_that_was_lent_before_a_restart_of_the_controller_is_no_contradiction(cluster, restarted):
    cluster.launch("/u/lends", resources(4))
    cluster.do(LendCpu(AttemptId("/u/lends/0:0"), True))
    cluster.submit("/u/borrows", resources(4))
    assert len(cluster.schedule().assignments) == 1
    invariants.check(restarted(cluster.view))
