"""What one task does: attempts, retries, budgets, and reports that come late, twice or from the wrong place."""

import pytest

from iris.domain.effects import ForgetAttempt, StartAttempt, StopAttempt
from iris.domain.errors import IllegalTransition
from iris.domain.events import Assigned, AttemptMissing, WorkerDisconnected, WorkerTroubled
from iris.domain.ids import TaskId, WorkerId
from iris.domain.resources import NOTHING
from iris.domain.states import FailureKind, JobState, TaskState
from iris.testing.scheduling import resources
from rigging.errors import Conflict, InvalidRequest, NotFound

A0, A1, A2 = "/u/job/0:0", "/u/job/0:1", "/u/job/0:2"


def test_an_attempt_from_start_to_success(cluster):
    cluster.submit()
    cluster.schedule()
    assert cluster.effects[-2] == StartAttempt(A0, "w")
    assert cluster.task().state is TaskState.ASSIGNED
    cluster.observe(A0, TaskState.BUILDING, at_ms=5)
    assert cluster.task().state is TaskState.BUILDING
    cluster.observe(A0, TaskState.RUNNING, at_ms=7)
    cluster.observe(A0, TaskState.SUCCEEDED, at_ms=9)
    task = cluster.task()
    assert (task.state, task.started_at_ms, task.finished_at_ms, task.causes) == (TaskState.SUCCEEDED, 7, 9, ())
    assert ForgetAttempt(A0, "w") in cluster.effects
    assert cluster.view.committed("w") == NOTHING


def test_a_service_that_fails_now_and_then_lives_on_with_a_retry_window(cluster):
    cluster.submit(max_retries_failure=1, retry_window_ms=1000)
    for attempt, now_ms in enumerate((2_000, 5_000, 9_000, 10_500, 10_900)):
        cluster.schedule()
        cluster.now_ms = now_ms
        cluster.observe(f"/u/job/0:{attempt}", TaskState.RUNNING)
        assert cluster.task().state is TaskState.RUNNING, "as often as it takes, with a second in between"
        cluster.observe(f"/u/job/0:{attempt}", TaskState.FAILED, exit_code=3)
    task = cluster.task()
    assert (task.state, task.failures) == (TaskState.FAILED, 5)
    assert task.error == "exit code 3; that is failure 2 within 1 s, and 1 are tried again"


def test_only_the_end_may_be_reported(cluster):
    cluster.submit()
    cluster.schedule()
    cluster.observe(A0, TaskState.SUCCEEDED, at_ms=9)
    assert (cluster.task().started_at_ms, cluster.task().finished_at_ms) == (9, 9)
    assert cluster.job().state is JobState.SUCCEEDED


def test_reports_out_of_order_and_repeated_change_nothing(cluster):
    cluster.submit()
    cluster.schedule()
    cluster.observe(A0, TaskState.RUNNING, at_ms=7)
    for late in (TaskState.BUILDING, TaskState.RUNNING):
        outcome = cluster.observe(A0, late, at_ms=8)
        assert not outcome.changes
        assert outcome.effects == ()
    cluster.observe(A0, TaskState.SUCCEEDED, at_ms=9)
    again = cluster.observe(A0, TaskState.FAILED, at_ms=10)
    assert not again.changes
    assert again.effects == (ForgetAttempt(A0, "w"),)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"exit_code": 3}, "exit code 3"),
        ({"exit_signal": 11}, "killed by SIGSEGV"),
        ({"exit_signal": 200}, "killed by signal 200"),
        ({"failure_kind": FailureKind.OOM, "exit_signal": 9}, "out of memory"),
        ({"failure_kind": FailureKind.ENVIRONMENT, "error": "uv: no such package"}, "uv: no such package"),
        ({"failure_kind": FailureKind.START, "error": "command not found: x"}, "command not found: x"),
    ],
)
def test_a_failure_of_the_users_side_is_final_without_retries(cluster, fields, reason):
    cluster.submit(max_retries_preemption=5)
    cluster.schedule()
    cluster.observe(A0, TaskState.FAILED, **fields)
    task = cluster.task()
    assert (task.state, task.error, task.failures, task.preemptions) == (TaskState.FAILED, reason, 1, 0)
    assert task.causes == (f"attempt 0 on w: {reason}",)
    job = cluster.job()
    assert (job.state, job.error) == (JobState.FAILED, f"task 0 failed: {reason}")
    assert (job.exit_code, job.exit_signal) == (fields.get("exit_code", 0), fields.get("exit_signal", 0))
    assert job.deciding_task_id == "/u/job/0"


def test_user_failures_use_their_own_budget(cluster):
    cluster.submit(max_retries_failure=1, max_retries_preemption=0)
    cluster.schedule()
    cluster.observe(A0, TaskState.FAILED, exit_code=1)
    task = cluster.task()
    assert (task.state, task.attempt, task.worker_id, task.failures) == (TaskState.PENDING, 0, None, 1)
    cluster.schedule()
    cluster.observe(A1, TaskState.FAILED, exit_code=2)
    assert cluster.job().error == "task 0 failed: exit code 2 (the last of 2 failed attempts)"
    assert cluster.task().causes == ("attempt 0 on w: exit code 1", "attempt 1 on w: exit code 2")


@pytest.mark.parametrize(
    ("state", "fields", "reason"),
    [
        (TaskState.FAILED, {"failure_kind": FailureKind.WORKER, "error": "disk full"}, "disk full"),
        (TaskState.WORKER_FAILED, {"error": "bundle unreachable"}, "bundle unreachable"),
        (TaskState.KILLED, {}, "killed by its worker"),
        (TaskState.PREEMPTED, {}, "preempted by its worker"),
    ],
)
def test_the_workers_faults_use_the_preemption_budget(cluster, state, fields, reason):
    cluster.submit(max_retries_failure=0, max_retries_preemption=1)
    cluster.schedule()
    cluster.observe(A0, state, **fields)
    task = cluster.task()
    assert (task.state, task.failures, task.preemptions) == (TaskState.PENDING, 0, 1)
    assert task.causes == (f"attempt 0 on w: {reason}",)
    cluster.schedule()
    cluster.observe(A1, state, **fields)
    assert cluster.task().state is TaskState.WORKER_FAILED
    job = cluster.job()
    assert job.state is JobState.WORKER_FAILED
    assert job.error == f"task 0 lost its worker 2 times (max_retries_preemption=1): worker w: {reason}"


def test_a_report_of_an_earlier_attempt_changes_nothing(cluster):
    cluster.submit(max_retries_failure=1)
    cluster.schedule()
    cluster.observe(A0, TaskState.FAILED, exit_code=1)
    cluster.schedule()
    before = cluster.task()
    outcome = cluster.observe(A0, TaskState.SUCCEEDED, worker_id="w")
    assert not outcome.changes
    assert outcome.effects == (ForgetAttempt(A0, "w"),)
    assert cluster.task() == before


def test_a_report_from_a_worker_that_does_not_have_the_attempt_changes_nothing(cluster):
    cluster.connect("other", resources(1))
    cluster.submit(need=resources(4))
    cluster.schedule()
    ended = cluster.observe(A0, TaskState.SUCCEEDED, worker_id="other")
    assert not ended.changes
    running = cluster.observe(A0, TaskState.RUNNING, worker_id="other")
    assert not running.changes
    assert [(type(effect), effect.worker_id) for effect in running.effects] == [(StopAttempt, "other")]
    assert cluster.task().state is TaskState.ASSIGNED


@pytest.mark.parametrize("name", ["/u/none/0:0", "/u/job/9:0", "nonsense", "/u/job/0:x", ":", "/u/job/²:0"])
def test_unknown_attempts_are_stopped_or_forgotten(cluster, name):
    cluster.submit()
    running = cluster.observe(name, TaskState.RUNNING, worker_id="w")
    assert [type(effect) for effect in running.effects] == [StopAttempt]
    ended = cluster.observe(name, TaskState.FAILED, worker_id="w")
    assert ended.effects == (ForgetAttempt(name, "w"),)
    assert not running.changes
    assert not ended.changes


def test_an_attempt_thought_gone_is_stopped_and_accounted_for(cluster):
    cluster.submit(need=resources(2))
    cluster.schedule()
    cluster.do(AttemptMissing(A0, "its worker does not have it any more"))
    assert cluster.task().state is TaskState.PENDING
    outcome = cluster.observe(A0, TaskState.RUNNING, worker_id="w")
    assert [type(effect) for effect in outcome.effects] == [StopAttempt]
    assert cluster.view.committed("w").cpu_millis == 2000
    assert cluster.schedule().assignments == [("/u/job/0", "w")]  # the retry need not wait for it
    cluster.observe(A0, TaskState.KILLED)
    assert cluster.view.committed("w").cpu_millis == 2000
    assert cluster.task().state is TaskState.ASSIGNED


def test_states_that_a_worker_cannot_see_are_refused(cluster):
    cluster.submit()
    cluster.schedule()
    with pytest.raises(InvalidRequest, match="reports /u/job/0:0 as unschedulable"):
        cluster.observe(A0, TaskState.UNSCHEDULABLE)


class TestAssign:
    def test_twice(self, cluster):
        cluster.submit()
        cluster.schedule()
        with pytest.raises(IllegalTransition, match="cannot go from assigned to assigned"):
            cluster.do(Assigned(TaskId("/u/job/0"), WorkerId("w")))

    def test_more_than_fits(self, cluster):
        cluster.submit("/u/a", resources(3))
        cluster.submit("/u/b", resources(2))
        cluster.schedule()
        with pytest.raises(Conflict, match="task /u/b/0 does not fit on worker w any more"):
            cluster.do(Assigned(TaskId("/u/b/0"), WorkerId("w")))

    def test_unknown_worker_and_task(self, cluster):
        cluster.submit()
        with pytest.raises(NotFound, match="worker x does not exist"):
            cluster.do(Assigned(TaskId("/u/job/0"), WorkerId("x")))
        with pytest.raises(NotFound, match="job /u/job has tasks 0 to 0"):
            cluster.do(Assigned(TaskId("/u/job/1"), WorkerId("w")))

    def test_disconnected_worker(self, cluster):
        cluster.submit()
        cluster.do(WorkerDisconnected(WorkerId("w"), "a"))
        with pytest.raises(Conflict, match="worker w is not connected"):
            cluster.do(Assigned(TaskId("/u/job/0"), WorkerId("w")))


def test_the_story_of_a_much_retried_task_keeps_its_beginning_and_its_end(cluster):
    cluster.submit(max_retries_failure=200)
    for number in range(150):
        cluster.schedule()
        cluster.observe(f"/u/job/0:{number}", TaskState.FAILED, exit_code=1)
    causes = cluster.task().causes
    assert len(causes) == 100
    assert causes[0].startswith("attempt 0 on w")
    assert causes[19].startswith("attempt 19 on w")
    assert causes[20].startswith("attempt 70 on w")
    assert causes[-1].startswith("attempt 149 on w")


def test_nothing_is_assigned_to_a_worker_in_trouble(cluster):
    cluster.connect("w", resources(4))
    cluster.submit()
    cluster.do(WorkerTroubled(WorkerId("w"), "a", "its guardian sleeps"))
    with pytest.raises(Conflict, match="nothing can be assigned to worker w at present: its guardian sleeps"):
        cluster.do(Assigned(TaskId("/u/job/0"), WorkerId("w")))


def test_a_job_that_lives_has_not_ended(cluster):
    cluster.connect("w", resources(4))
    cluster.submit()
    cluster.schedule()
    for state in (TaskState.BUILDING, TaskState.RUNNING):
        cluster.observe("/u/job/0:0", state)
        assert cluster.job().finished_at_ms == 0


def test_what_a_worker_gives_no_time_for_has_happened_just_now(cluster):
    cluster.submit()
    cluster.schedule()
    began = cluster.now_ms
    cluster.observe(A0, TaskState.RUNNING)
    ended = cluster.now_ms
    cluster.observe(A0, TaskState.SUCCEEDED)
    assert (cluster.task().started_at_ms, cluster.task().finished_at_ms) == (began, ended)
