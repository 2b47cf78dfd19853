import pytest

from iris.core.rules.reduce import expired, next_deadline
from iris.domain.events import Assigned, JobHeld, JobReleased
from iris.domain.ids import JobId, TaskId, WorkerId
from iris.domain.states import FailureKind, JobState, TaskState
from rigging.errors import Conflict, NotFound
from support.iris.scheduling import InMemoryCluster

JOB = JobId("/u/job")
HOLD, RELEASE = JobHeld(JOB, "ann"), JobReleased(JOB)
FIRST = "/u/job/0:0"


@pytest.mark.parametrize("fields", [{"replicas": 2}, {"replicas": 2, "coscheduling_group_by": "arch"}])
def test_a_held_job_waits_for_its_release_also_over_a_restart_and_others_start(cluster, restarted, fields) -> None:
    cluster.connect("v", cluster.view.workers["w"].capacity, arch="x")
    cluster.submit(**fields)
    cluster.do(HOLD)
    assert cluster.job().hold == "held by ann since 1970-01-01 00:00 UTC"
    cluster.do(JobHeld(JOB, "bob"))
    cluster.view = restarted(cluster.view)
    cluster.submit("/u/other")
    assert [task for task, _ in cluster.schedule().assignments] == ["/u/other/0"]
    assert (cluster.job().state, "by ann" in cluster.job().hold) == (JobState.PENDING, True), "the first hold counts"
    with pytest.raises(Conflict, match="/u/job/0 cannot start: its job is held by ann"):
        cluster.do(Assigned(TaskId("/u/job/0"), WorkerId("w")))
    cluster.do(RELEASE)
    assert {task for task, _ in cluster.schedule().assignments} == {"/u/job/0", "/u/job/1"}
    assert not cluster.do(RELEASE).changes.jobs, "a job that is not held is left alone"


def test_what_runs_goes_on_and_its_retry_waits(cluster: InMemoryCluster) -> None:
    cluster.launch(max_retries_failure=1, retry_delay_ms=1000)
    cluster.observe(FIRST, TaskState.RUNNING)
    cluster.do(HOLD)
    assert cluster.job().state is JobState.RUNNING
    cluster.observe(FIRST, TaskState.FAILED, failure_kind=FailureKind.USER)
    cluster.now_ms = next_deadline(cluster.view) or 0
    for event in expired(cluster.view, cluster.now_ms):
        cluster.do(event)
    assert cluster.schedule().assignments == []
    cluster.do(RELEASE)
    assert cluster.schedule().assignments == [("/u/job/0", "w")]


def test_a_prefilled_attempt_goes_back_at_no_charge(cluster: InMemoryCluster) -> None:
    cluster.launch(replicas=5, max_retries_preemption=0)
    cluster.do(Assigned(TaskId("/u/job/4"), WorkerId("w"), prefilled=True))
    cluster.do(HOLD)
    task = cluster.task("/u/job/4")
    assert (task.state, task.preemptions, cluster.task().state) == (TaskState.PENDING, 0, TaskState.ASSIGNED)
    cluster.observe("/u/job/4:0", TaskState.KILLED)
    cluster.observe(FIRST, TaskState.SUCCEEDED)
    assert cluster.schedule().assignments == []


def test_a_held_job_can_be_stopped_and_an_ended_one_not_held(cluster: InMemoryCluster) -> None:
    cluster.submit()
    cluster.do(HOLD)
    cluster.stop(JOB)
    assert (cluster.job().state, cluster.job().hold) == (JobState.KILLED, "")
    with pytest.raises(Conflict, match=r"job /u/job has ended \(killed\); only live jobs can be held"):
        cluster.do(HOLD)
    with pytest.raises(NotFound):
        cluster.do(JobHeld(JobId("/u/none"), "ann"))


def test_a_job_starts_at_its_time_also_over_a_restart_and_its_limit_of_waiting_counts_from_there(
    cluster: InMemoryCluster, restarted
) -> None:
    cluster.submit(replicas=2, start_at_ms=60_000, scheduling_timeout_ms=5_000)
    assert cluster.schedule().assignments == []
    cluster.view = restarted(cluster.view)
    assert next_deadline(cluster.view) == 60_000
    cluster.now_ms = 60_000
    for event in expired(cluster.view, cluster.now_ms):
        cluster.do(event)
    assert next_deadline(cluster.view) == 65_000
    assert len(cluster.schedule().assignments) == 2


def test_no_more_tasks_run_at_once_than_the_job_says(cluster: InMemoryCluster) -> None:
    cluster.submit(replicas=4, max_running=2)
    cluster.submit("/v/other")
    plan = cluster.schedule()
    assert [task for task, _ in plan.assignments] == ["/u/job/0", "/u/job/1", "/v/other/0"]
    assert cluster.schedule().reasons.get(JOB, "") == "runs 2 tasks, the job's max_running"
    cluster.observe(FIRST, TaskState.SUCCEEDED)
    assert [task for task, _ in cluster.schedule().assignments] == ["/u/job/2"]
    cluster.stop(JOB)
