"""What jobs do: submission, their end, their children, their limits, and when they began and ended."""

from itertools import product
from typing import Any

import pytest

from iris.core.rules.peer_rules import awaits_peers
from iris.core.rules.reduce import expired, next_deadline
from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.effects import JobChanged, JobEnded, JobSettled, StopAttempt
from iris.domain.entities import UserBudget
from iris.domain.events import AttemptObserved, BudgetSet, TimedOut, WorkerLate, WorkerLost
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.resources import Device, Resources
from iris.domain.states import FailureKind, JobState, PriorityBand, TaskState, TimeoutKind
from rigging.errors import AlreadyExists, Conflict, Denied, NotFound
from support.iris.scheduling import InMemoryCluster, resources

JOB = JobId("/u/job")


def told(cluster: InMemoryCluster, kind: type[JobEnded] | type[JobSettled]) -> list[str]:
    return [effect.job_id for effect in cluster.effects if isinstance(effect, kind)]


class TestSubmit:
    def test_a_job_and_its_tasks_once_for_a_key(self, cluster):
        cluster.submit(replicas=3, key="k")
        job = cluster.job()
        assert (job.state, job.sequence, job.counts) == (JobState.PENDING, 1, {TaskState.PENDING: 3})
        assert [task.task_id for task in cluster.view.tasks[JOB]] == ["/u/job/0", "/u/job/1", "/u/job/2"]
        cluster.submit(key="k")
        assert (cluster.job(), list(cluster.view.jobs)) == (job, [JOB])
        with pytest.raises(AlreadyExists, match="job /u/job exists and is pending; stop it, adopt it, or choose"):
            cluster.submit(key="other")

    def test_an_ended_name_is_free_and_attempts_go_on_counting(self, cluster):
        cluster.launch(replicas=3, key="k1")
        cluster.stop("/u/job")
        cluster.submit(replicas=2, key="k2")
        job = cluster.job()
        assert (job.state, job.first_attempt, job.sequence) == (JobState.PENDING, 1, 2)
        assert len(cluster.view.tasks[JOB]) == 2
        plan = cluster.schedule()
        assert (plan.assignments, plan.reasons) == ([], {"/u/job": "waits for 3 earlier attempts to end"})
        for index in range(3):
            cluster.observe(f"/u/job/{index}:0", TaskState.KILLED)
        cluster.schedule()
        assert [task.attempt_id for task in cluster.view.tasks[JOB]] == ["/u/job/0:1", "/u/job/1:1"]
        cluster.observe("/u/job/0:0", TaskState.SUCCEEDED, worker_id="w")
        assert cluster.task().state is TaskState.ASSIGNED

    def test_numbers_go_on_even_when_a_resubmission_never_ran(self, cluster):
        cluster.launch()
        cluster.observe("/u/job/0:0", TaskState.SUCCEEDED)
        cluster.submit()
        cluster.stop("/u/job")
        cluster.submit()
        assert cluster.job().first_attempt == 1

    def test_a_child_needs_a_live_parent_and_a_band_that_its_user_may_have(self, cluster):
        with pytest.raises(NotFound, match="its parent /u/job does not exist"):
            cluster.submit("/u/job/child")
        cluster.submit()
        cluster.stop("/u/job")
        with pytest.raises(Conflict, match=r"its parent /u/job has ended \(killed\)"):
            cluster.submit("/u/job/child")
        cluster.do(BudgetSet(UserBudget("ann", max_band=PriorityBand.INTERACTIVE)))
        message = "user ann may not submit in the production band; the most urgent allowed is interactive"
        with pytest.raises(Denied, match=message):
            cluster.submit("/ann/job", band=PriorityBand.PRODUCTION)
        cluster.submit("/ann/job", band=PriorityBand.INTERACTIVE)

    def test_children_inherit_region_and_zone_unless_they_name_their_own(self, cluster):
        region = Constraint("region", ConstraintOp.EQ, ("eu",))
        zone = Constraint("zone", ConstraintOp.IN, ("a", "b"))
        soft = Constraint("region", ConstraintOp.EQ, ("us",), soft=True)
        own = Constraint("zone", ConstraintOp.EQ, ("c",))
        cluster.submit(constraints=(region, zone, soft, Constraint("disk", ConstraintOp.EXISTS)))
        cluster.submit("/u/job/child")
        cluster.submit("/u/job/own", constraints=(own,))
        cluster.submit("/u/job/child/grandchild")
        assert cluster.job("/u/job/child").spec.constraints == (region, zone)
        assert cluster.job("/u/job/own").spec.constraints == (own, region)
        assert cluster.job("/u/job/child/grandchild").spec.constraints == (region, zone)


class TestLife:
    def test_building_running_succeeded_each_told_once(self, cluster):
        cluster.launch(replicas=2)
        assert cluster.job().state is JobState.BUILDING
        cluster.observe("/u/job/1:0", TaskState.BUILDING)
        cluster.observe("/u/job/1:0", TaskState.RUNNING)
        assert cluster.job().state is JobState.RUNNING
        started = cluster.job().started_at_ms
        assert (started > 0, cluster.job().finished_at_ms) == (True, 0)
        cluster.observe("/u/job/1:0", TaskState.SUCCEEDED)
        cluster.observe("/u/job/0:0", TaskState.SUCCEEDED)
        job = cluster.job()
        assert (job.state, job.started_at_ms, job.error) == (JobState.SUCCEEDED, started, "")
        assert (job.deciding_task_id, job.counts) == (None, {TaskState.SUCCEEDED: 2})
        assert told(cluster, JobEnded) == told(cluster, JobSettled) == ["/u/job"]
        assert sum(isinstance(effect, JobChanged) for effect in cluster.effects) == 4  # pending building running end
        assert not cluster.view.live_jobs

    def test_the_first_task_that_fails_for_good_ends_the_job(self, cluster):
        cluster.launch(replicas=6)
        cluster.observe("/u/job/0:0", TaskState.SUCCEEDED)
        cluster.observe("/u/job/1:0", TaskState.FAILED, exit_code=3)
        job = cluster.job()
        assert (job.state, job.error, job.exit_code) == (JobState.FAILED, "task 1 failed: exit code 3", 3)
        assert job.counts == {TaskState.SUCCEEDED: 1, TaskState.FAILED: 1, TaskState.KILLED: 4}
        why = "job ended: task 1 failed: exit code 3"
        assert cluster.task("/u/job/2").error == why
        stops = [effect for effect in cluster.effects if isinstance(effect, StopAttempt)]
        assert [(stop.attempt_id, stop.reason) for stop in stops] == [("/u/job/2:0", why), ("/u/job/3:0", why)]

    @pytest.mark.parametrize(
        ("submitted", "reports", "state", "began", "ended"),
        [
            # One that fails at once has begun.
            ({}, [(0, TaskState.FAILED, 5_000, 5_040)], JobState.FAILED, 5_000, 5_040),
            # One whose end is heard late ended when its last task did.
            (
                {"replicas": 2},
                [(1, TaskState.RUNNING, 0, 3_003), (0, TaskState.SUCCEEDED, 4_000, 7_000),
                 (1, TaskState.SUCCEEDED, 0, 6_000)],
                JobState.SUCCEEDED, 3_003, 7_000,
            ),
            # A worker whose clock is ahead ends nothing in the future.
            ({}, [(0, TaskState.SUCCEEDED, 95_000, 99_000)], JobState.SUCCEEDED, 90_000, 90_000),
        ],
    )  # fmt: skip
    def test_it_begins_with_the_first_of_its_tasks_and_ends_with_the_last(
        self, cluster, submitted: dict[str, Any], reports: list[Any], state: JobState, began: int, ended: int
    ):
        cluster.launch(**submitted)
        for index, seen, started, at in reports:
            cluster.now_ms = 90_000
            cluster.observe(f"/u/job/{index}:0", seen, started_at_ms=started, at_ms=at)
        job = cluster.job()
        assert (job.state, job.started_at_ms, job.finished_at_ms) == (state, began, ended)


class TestStop:
    def test_stopped_attempts_hold_their_resources_until_they_have_ended(self, cluster):
        cluster.launch(need=resources(2), replicas=3)
        cluster.now_ms = 5_000
        cluster.stop("/u/job", "by ann")
        job = cluster.job()
        assert (job.state, job.error, job.finished_at_ms) == (JobState.KILLED, "by ann", 5_000)
        assert {task.error for task in cluster.view.tasks[JOB]} == {"by ann"}
        assert cluster.view.committed("w").cpu_millis == 4000
        assert (told(cluster, JobEnded), told(cluster, JobSettled)) == (["/u/job"], [])
        assert not cluster.view.is_settled("/u/job")
        cluster.observe("/u/job/0:0", TaskState.KILLED)
        assert told(cluster, JobSettled) == []
        cluster.observe("/u/job/1:0", TaskState.SUCCEEDED)  # it ended by itself just before the signal came
        assert told(cluster, JobSettled) == ["/u/job"]
        assert cluster.view.is_settled("/u/job")
        assert cluster.view.committed("w").cpu_millis == 0
        assert cluster.task("/u/job/1").state is TaskState.KILLED

    def test_a_lost_worker_settles_what_was_stopping_on_it(self, cluster):
        cluster.launch()
        cluster.observe("/u/job/0:0", TaskState.RUNNING)
        cluster.stop("/u/job")
        assert not cluster.view.is_settled("/u/job")
        cluster.do(WorkerLost(WorkerId("w"), "not seen"))
        assert told(cluster, JobSettled) == ["/u/job"]
        assert (cluster.view.committed("w").cpu_millis, list(cluster.view.lost)) == (0, ["/u/job/0:0"])
        assert cluster.task().causes == ("attempt 0 on w: stopped: stopped",)

    def test_a_pending_job_ends_at_once_and_stays_as_it_is(self, cluster):
        cluster.submit(need=resources(99))
        cluster.stop("/u/job")
        assert told(cluster, JobSettled) == ["/u/job"]
        assert (cluster.job().error, cluster.job().started_at_ms) == ("stopped", 0)
        outcome = cluster.stop("/u/job")
        assert (bool(outcome.changes), outcome.effects) == (False, ())
        with pytest.raises(NotFound, match="job /u/none does not exist"):
            cluster.stop("/u/none")


class TestChildren:
    def test_the_whole_tree_ends_with_its_root_and_each_says_why(self, cluster):
        cluster.submit()
        cluster.submit("/u/job/a", resources(1))
        cluster.submit("/u/job/a/x", resources(99))
        cluster.launch("/u/job/b", resources(1))
        cluster.observe("/u/job/b/0:0", TaskState.SUCCEEDED)
        cluster.observe("/u/job/0:0", TaskState.FAILED, exit_code=1)
        why = "its parent /u/job ended (failed: task 0 failed: exit code 1)"
        assert (cluster.job("/u/job/a").error, cluster.job("/u/job/a").state) == (why, JobState.KILLED)
        assert cluster.job("/u/job/a/x").error == f"its parent /u/job/a ended (killed: {why})"
        assert cluster.job("/u/job/b").state is JobState.SUCCEEDED
        assert told(cluster, JobSettled) == ["/u/job/b", "/u/job", "/u/job/a/x"]

    def test_the_end_of_a_child_leaves_its_parent_alone_and_success_of_the_parent_ends_them_too(self, cluster):
        cluster.submit()
        cluster.submit("/u/job/a")
        cluster.launch("/u/job/b")
        cluster.observe("/u/job/a/0:0", TaskState.FAILED, exit_code=1)
        assert (cluster.job().state, cluster.view.children) == (JobState.BUILDING, {"/u/job": {"/u/job/b": None}})
        cluster.observe("/u/job/0:0", TaskState.SUCCEEDED)
        assert cluster.job("/u/job/b").error == "its parent /u/job ended (succeeded)"


class TestLimits:
    def test_run_time_counts_from_the_first_start(self, cluster):
        cluster.submit(timeout_ms=60_000)
        assert next_deadline(cluster.view) is None
        cluster.schedule()
        cluster.observe("/u/job/0:0", TaskState.RUNNING)
        due = cluster.job().started_at_ms + 60_000
        assert next_deadline(cluster.view) == due
        assert expired(cluster.view, due - 1) == []
        (event,) = expired(cluster.view, due)
        cluster.do(event)
        job = cluster.job()
        assert (job.state, job.error) == (JobState.FAILED, "timed out: it ran longer than 60 s")
        assert (next_deadline(cluster.view), expired(cluster.view, due)) == (None, [])

    def test_scheduling_time_counts_to_the_first_assignment(self, cluster):
        cluster.submit("/u/waits", resources(99), scheduling_timeout_ms=5_000)
        cluster.launch("/u/starts", scheduling_timeout_ms=5_000)
        (event,) = expired(cluster.view, 10_000)
        assert event == TimedOut(JobId("/u/waits"), TimeoutKind.SCHEDULING)
        cluster.do(event)
        job = cluster.job("/u/waits")
        assert (job.state, job.error) == (JobState.UNSCHEDULABLE, "not scheduled within 5 s")
        assert cluster.task("/u/waits/0").state is TaskState.UNSCHEDULABLE
        assert next_deadline(cluster.view) is None
        cluster.do(WorkerLost(WorkerId("w"), "not seen"))
        assert next_deadline(cluster.view) is None, "one that was assigned once may wait again"

    def test_many_deadlines_come_in_order_whatever_else_ends(self, cluster):
        for number in range(20):
            cluster.submit(f"/u/j{number}", resources(99), scheduling_timeout_ms=10_000 - 100 * number)
        for number in range(0, 20, 3):
            cluster.stop(f"/u/j{number}")
        events = expired(cluster.view, 50_000)
        assert [event.job_id for event in events] == [f"/u/j{n}" for n in reversed(range(20)) if n % 3]

    def test_an_event_that_comes_too_late_changes_nothing(self, cluster):
        cluster.launch("/u/starts", scheduling_timeout_ms=5_000)
        cluster.do(WorkerLost(WorkerId("w"), "not seen"))
        cluster.submit(timeout_ms=1)
        cluster.stop("/u/job")
        for name, what in (
            ("/u/starts", TimeoutKind.SCHEDULING),
            ("/u/job", TimeoutKind.RUN),
            ("/u/none", TimeoutKind.RUN),
        ):
            assert not cluster.do(TimedOut(JobId(name), what)).changes


class TestGangs:
    @pytest.fixture
    def gang(self):
        cluster = InMemoryCluster()
        for name in ("w1", "w2", "w3"):
            cluster.connect(name, resources(1, 4), slice="s")
        cluster.launch(replicas=3, coscheduling_group_by="slice", max_retries_failure=1, max_task_failures=3)
        return cluster

    def test_a_retry_takes_all_members_back_and_charges_one_and_a_final_failure_ends_it(self, gang):
        gang.observe("/u/job/0:0", TaskState.SUCCEEDED)
        gang.observe("/u/job/1:0", TaskState.RUNNING)
        gang.observe("/u/job/2:0", TaskState.FAILED, exit_code=3)
        tasks = gang.view.tasks[JOB]
        assert [task.state for task in tasks] == [TaskState.PENDING] * 3
        assert [(task.failures, task.preemptions) for task in tasks] == [(0, 0), (0, 0), (1, 0)]
        why = "gang restarted because task 2 failed on w3: exit code 3"
        assert tasks[0].causes == (f"attempt 0 on w1: taken back: {why}",)
        assert tasks[1].causes == (f"attempt 0 on w2: killed: {why}",)
        assert gang.schedule().reasons == {"/u/job": "waits for 1 earlier attempt to end"}
        gang.observe("/u/job/1:0", TaskState.KILLED)
        assert len(gang.schedule().assignments) == 3
        gang.observe("/u/job/2:1", TaskState.FAILED, exit_code=4)
        assert gang.job().state is JobState.FAILED, "a gang cannot do without a member"
        assert gang.job().error == "task 2 failed: exit code 4 (the last of 2 failed attempts)"

    def test_a_lost_worker_restarts_it_once(self, gang):
        gang.do(WorkerLost(WorkerId("w1"), "not seen"))
        assert gang.job().state is JobState.PENDING
        tasks = gang.view.tasks[JOB]
        assert [task.preemptions for task in tasks] == [1, 0, 0]
        assert tasks[1].causes[0].endswith("killed: gang restarted because task 0 lost worker w1: not seen")

    @pytest.mark.parametrize(
        ("before", "why", "charged", "lost"),
        [
            (None, "another member of the gang was gone", 1, 0),
            (WorkerLate(WorkerId("w1"), 5), "another member of the gang was gone; task 0 is on w1, which is out", 0, 1),
            (WorkerLost(WorkerId("w1"), "not seen"), "killed: gang restarted because task 0 lost worker w1", 0, 0),
            (FailureKind.DEVICE, "killed: gang restarted because task 0 lost worker w1: device error", 0, 0),
            (FailureKind.PREEMPTED, "killed: gang restarted because task 0 lost worker w1: the platform", 0, 0),
            (FailureKind.PEER, "killed: gang restarted because task 0 failed on w1: another member", 0, 0),
        ],
    )
    def test_a_peers_cause_outranks_that_of_a_member_which_it_left(self, gang, before, why, charged, lost):
        for index in range(3):
            gang.observe(f"/u/job/{index}:0", TaskState.RUNNING)
        fallen = AttemptObserved(
            AttemptId("/u/job/1:0"), WorkerId("w2"), TaskState.FAILED, 1, failure_kind=FailureKind.PEER
        )
        assert awaits_peers(gang.view, fallen)
        if isinstance(before, FailureKind):
            gang.observe("/u/job/0:0", TaskState.FAILED, failure_kind=before)
        elif before is not None:
            gang.do(before)
        gang.do(fallen)
        task = gang.task("/u/job/1")
        assert (task.state, task.failures, task.preemptions) == (TaskState.PENDING, charged, lost)
        assert task.causes[0].startswith(f"attempt 0 on w2: {why}"), task.causes
        assert not awaits_peers(gang.view, fallen), "it counts no more"

    def test_it_goes_elsewhere_when_a_chip_of_its_hosts_stays_busy(self):
        cluster = InMemoryCluster()
        need = Resources(1000, 1 << 30, device=Device("tpu", "v4-16", 4))
        for slice_name, index in product("ab", "01"):
            attributes = {"tpu-name": slice_name, "tpu-worker-id": index}
            cluster.connect(f"{slice_name}{index}", Resources(8000, 8 << 30, device=need.device), **attributes)
        cluster.launch(need=need, replicas=2, coscheduling_group_by="tpu-name")
        before = [task.worker_id for task in cluster.view.tasks[JOB]]
        cluster.observe("/u/job/1:0", TaskState.FAILED, failure_kind=FailureKind.DEVICE, error="accel0 is in use")
        cluster.observe("/u/job/0:0", TaskState.KILLED)
        cluster.schedule()
        tasks = cluster.view.tasks[JOB]
        assert [before, [task.worker_id for task in tasks]] in (
            [["a0", "a1"], ["b0", "b1"]],
            [["b0", "b1"], ["a0", "a1"]],
        )
        assert [task.failures for task in tasks] == [0, 0]


class TestToleratedFailures:
    def test_the_others_go_on_and_the_job_succeeds(self, cluster):
        cluster.launch(replicas=3, max_task_failures=1)
        cluster.observe("/u/job/0:0", TaskState.FAILED, exit_code=3)
        assert cluster.job().state is JobState.RUNNING
        cluster.observe("/u/job/1:0", TaskState.SUCCEEDED)
        cluster.observe("/u/job/2:0", TaskState.SUCCEEDED)
        assert (cluster.job().state, cluster.task("/u/job/0").state) == (JobState.SUCCEEDED, TaskState.FAILED)

    def test_one_too_many_ends_it_with_the_count(self, cluster):
        cluster.launch(replicas=4, max_task_failures=1)
        cluster.observe("/u/job/0:0", TaskState.FAILED, exit_code=3)
        cluster.observe("/u/job/3:0", TaskState.FAILED, failure_kind=FailureKind.OOM)
        job = cluster.job()
        assert job.state is JobState.FAILED
        assert job.error == "2 tasks failed for good (max_task_failures=1); the last: task 3 failed: out of memory"
