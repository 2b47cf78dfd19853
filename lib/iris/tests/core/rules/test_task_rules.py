"""What one task does: attempts, retries, budgets, and reports that come late, twice or from the wrong place."""

import pytest

from iris.core.rules.reduce import expired
from iris.domain.effects import ForgetAttempt, StartAttempt, StopAttempt
from iris.domain.errors import IllegalTransition
from iris.domain.events import (
    Assigned,
    AttemptMissing,
    WorkerCordoned,
    WorkerDisconnected,
    WorkerLate,
    WorkerTroubled,
)
from iris.domain.ids import TaskId, WorkerId
from iris.domain.resources import NOTHING
from iris.domain.states import FailureKind, JobState, TaskState
from rigging.errors import Conflict, InvalidRequest, NotFound
from support.iris.scheduling import resources

A0, A1, A2 = "/u/job/0:0", "/u/job/0:1", "/u/job/0:2"


def test_an_attempt_from_start_to_success(cluster):
    cluster.launch()
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


def test_reports_out_of_order_and_repeated_change_nothing(cluster):
    cluster.launch()
    cluster.observe(A0, TaskState.RUNNING, at_ms=7)
    for late in (TaskState.BUILDING, TaskState.RUNNING):
        outcome = cluster.observe(A0, late, at_ms=8)
        assert (bool(outcome.changes), outcome.effects) == (False, ())
    cluster.observe(A0, TaskState.SUCCEEDED, at_ms=9)
    again = cluster.observe(A0, TaskState.FAILED, at_ms=10)
    assert (bool(again.changes), again.effects) == (False, (ForgetAttempt(A0, "w"),))


@pytest.mark.parametrize(
    ("state", "fields", "reason", "is_users"),
    [
        (TaskState.FAILED, {"exit_code": 3}, "exit code 3", True),
        (TaskState.FAILED, {"exit_signal": 11}, "killed by SIGSEGV", True),
        (TaskState.FAILED, {"exit_signal": 200}, "killed by signal 200", True),
        (TaskState.FAILED, {"failure_kind": FailureKind.OOM, "exit_signal": 9}, "out of memory", True),
        (TaskState.FAILED, {"failure_kind": FailureKind.START}, "the command could not be started", True),
        (TaskState.FAILED, {"failure_kind": FailureKind.START, "error": "no x"}, "no x", True),
        (TaskState.FAILED, {"failure_kind": FailureKind.ENVIRONMENT}, "the environment could not be built", True),
        (TaskState.FAILED, {"failure_kind": FailureKind.DEVICE, "started_at_ms": 1}, "device error", False),
        (TaskState.FAILED, {"failure_kind": FailureKind.PREEMPTED}, "the platform preempted the host", False),
        (TaskState.FAILED, {"failure_kind": FailureKind.WORKER, "error": "disk full"}, "disk full", False),
        (TaskState.WORKER_FAILED, {"error": "bundle unreachable"}, "bundle unreachable", False),
        (TaskState.WORKER_FAILED, {"failure_kind": FailureKind.WORKER}, "worker_failed by its worker", False),
        (TaskState.KILLED, {}, "killed by its worker", False),
        (TaskState.PREEMPTED, {}, "preempted by its worker", False),
        (TaskState.PREEMPTED, {"failure_kind": FailureKind.PREEMPTED}, "the platform preempted the host", False),
    ],
)
def test_each_end_is_charged_to_its_budget_and_the_last_one_ends_the_job(cluster, state, fields, reason, is_users):
    cluster.launch(max_retries_failure=0 if is_users else 5, max_retries_preemption=5 if is_users else 1)
    cluster.observe(A0, state, **fields)
    task, job = cluster.task(), cluster.job()
    assert task.causes == (f"attempt 0 on w: {reason}",)
    if is_users:
        assert (task.state, task.error, task.failures, task.preemptions) == (TaskState.FAILED, reason, 1, 0)
        assert (job.state, job.error) == (JobState.FAILED, f"task 0 failed: {reason}")
        assert (job.exit_code, job.exit_signal) == (fields.get("exit_code", 0), fields.get("exit_signal", 0))
        assert job.deciding_task_id == "/u/job/0"
        return
    assert (task.state, task.failures, task.preemptions) == (TaskState.PENDING, 0, 1)
    cluster.now_ms = max(cluster.now_ms, task.retry_at_ms)
    for event in expired(cluster.view, cluster.now_ms):
        cluster.do(event)
    cluster.schedule()
    cluster.observe(A1, state, **fields)
    assert (cluster.task().state, cluster.job().state) == (TaskState.WORKER_FAILED, JobState.WORKER_FAILED)
    why = f"task 0 lost its worker 2 times (max_retries_preemption=1): worker w: {reason}"
    assert cluster.job().error == why


def test_user_failures_use_their_own_budget(cluster):
    cluster.launch(max_retries_failure=1, max_retries_preemption=0)
    cluster.observe(A0, TaskState.FAILED, exit_code=1)
    task = cluster.task()
    assert (task.state, task.attempt, task.worker_id, task.failures) == (TaskState.PENDING, 0, None, 1)
    cluster.schedule()
    cluster.observe(A1, TaskState.FAILED, exit_code=2)
    assert cluster.job().error == "task 0 failed: exit code 2 (the last of 2 failed attempts)"
    assert cluster.task().causes == ("attempt 0 on w: exit code 1", "attempt 1 on w: exit code 2")


def test_a_report_of_an_earlier_attempt_changes_nothing(cluster):
    cluster.launch(max_retries_failure=1)
    cluster.observe(A0, TaskState.FAILED, exit_code=1)
    cluster.schedule()
    before = cluster.task()
    outcome = cluster.observe(A0, TaskState.SUCCEEDED, worker_id="w")
    assert not outcome.changes
    assert outcome.effects == (ForgetAttempt(A0, "w"),)
    assert cluster.task() == before


def test_a_report_from_a_worker_that_does_not_have_the_attempt_changes_nothing(cluster):
    cluster.connect("other", resources(1))
    cluster.launch(need=resources(4))
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
    cluster.launch(need=resources(2))
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
    cluster.launch()
    with pytest.raises(InvalidRequest, match="reports /u/job/0:0 as unschedulable"):
        cluster.observe(A0, TaskState.UNSCHEDULABLE)


def test_what_cannot_be_assigned_is_refused(cluster):
    """The scheduler decides by an older view, and anything may have happened since."""

    def refused(error: type[Exception], match: str, task: str = "/u/b/0", worker: str = "w") -> None:
        with pytest.raises(error, match=match):
            cluster.do(Assigned(TaskId(task), WorkerId(worker)))

    cluster.submit("/u/a", resources(1))
    cluster.launch("/u/b", resources(4))
    refused(IllegalTransition, "cannot go from assigned to assigned", "/u/a/0")
    refused(Conflict, "task /u/b/0 does not fit on worker w any more")
    refused(NotFound, "worker x does not exist", worker="x")
    refused(NotFound, "job /u/b has tasks 0 to 0", "/u/b/1")
    cluster.do(WorkerTroubled(WorkerId("w"), "a", "its guardian sleeps"))
    refused(Conflict, "nothing can be assigned to worker w at present: its guardian sleeps")
    cluster.do(WorkerTroubled(WorkerId("w"), "a", ""))
    cluster.do(WorkerCordoned(WorkerId("w"), "bad fan"))
    refused(Conflict, r"worker w is cordoned \(bad fan\)")
    cluster.do(WorkerLate(WorkerId("w"), 10_000))
    refused(Conflict, "worker w was not heard for two heartbeats")
    cluster.do(WorkerDisconnected(WorkerId("w"), "a"))
    refused(Conflict, "worker w is not connected")


def test_the_story_of_a_much_retried_task_keeps_its_beginning_and_its_end(cluster):
    cluster.submit(max_retries_failure=200)
    for number in range(150):
        cluster.schedule()
        cluster.observe(f"/u/job/0:{number}", TaskState.FAILED, exit_code=1)
    numbers = [int(cause.split()[1]) for cause in cluster.task().causes]
    assert numbers == [*range(20), *range(70, 150)]


def test_only_the_end_may_be_reported_and_what_has_no_time_has_happened_just_now(cluster):
    cluster.launch()
    cluster.observe(A0, TaskState.SUCCEEDED, at_ms=9)
    assert (cluster.task().started_at_ms, cluster.task().finished_at_ms) == (9, 9)
    assert cluster.job().state is JobState.SUCCEEDED
    cluster.launch("/u/b")
    began = cluster.now_ms
    cluster.observe("/u/b/0:0", TaskState.RUNNING)
    ended = cluster.now_ms
    cluster.observe("/u/b/0:0", TaskState.SUCCEEDED)
    assert (cluster.task("/u/b/0").started_at_ms, cluster.task("/u/b/0").finished_at_ms) == (began, ended)
