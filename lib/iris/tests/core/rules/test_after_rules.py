"""Jobs that start after others: `JobSpec.after`."""

from dataclasses import replace

import pytest

from iris.core.rules.after_rules import waits_reason, without_removed
from iris.core.rules.reduce import expired, next_deadline
from iris.domain.effects import JobChanged
from iris.domain.events import Assigned, JobHeld, JobReleased, StopRequested
from iris.domain.ids import JobId, TaskId, WorkerId
from iris.domain.states import FailureKind, JobState, TaskState
from rigging.errors import Conflict, InvalidRequest, MarinError, NotFound
from support.iris.scheduling import InMemoryCluster

JOB = JobId("/u/job")


def end(cluster: InMemoryCluster, name: str, state: TaskState = TaskState.SUCCEEDED, attempt: int = 0) -> None:
    cluster.schedule()
    cluster.observe(f"{name}/0:{attempt}", state, failure_kind=FailureKind.USER)


def expire(cluster: InMemoryCluster) -> None:
    for event in expired(cluster.view, cluster.now_ms):
        cluster.do(event)


def placed(cluster: InMemoryCluster) -> list[str]:
    return [task for task, _ in cluster.schedule().assignments]


@pytest.mark.parametrize("fields", [{"replicas": 2}, {"replicas": 2, "coscheduling_group_by": "arch"}])
def test_a_job_starts_after_all_ends_also_over_restarts(cluster: InMemoryCluster, restarted, fields) -> None:
    cluster.connect("v", cluster.view.workers["w"].capacity, arch="x")
    cluster.submit("/u/a")
    cluster.submit("/u/b")
    cluster.submit(after="/u/a:ok,/u/b:any", **fields)
    assert placed(cluster) == ["/u/a/0", "/u/b/0"]
    assert waits_reason(cluster.job()) == "waits for job /u/a to succeed, /u/b to end"
    many = replace(cluster.job(), waits="/u/a:any,/u/b:any,/u/c:any")
    assert waits_reason(many).endswith("/u/b to end, /u/c to end")
    assert waits_reason(replace(many, waits=f"{many.waits},/u/d:any")).endswith("/u/c to end and 1 more")
    with pytest.raises(Conflict, match="/u/job/0 cannot start: its job is waiting for /u/a:ok,/u/b:any"):
        cluster.do(Assigned(TaskId("/u/job/0"), WorkerId("w")))
    cluster.view = restarted(cluster.view)
    end(cluster, "/u/a")
    # What the name means later changes nothing: that wait is over.
    cluster.submit("/u/a")
    end(cluster, "/u/a", TaskState.FAILED, attempt=1)
    assert (placed(cluster), cluster.job().waits) == ([], "/u/b:any")
    cluster.view = restarted(cluster.view)
    end(cluster, "/u/b", TaskState.FAILED)
    assert JobChanged(JOB) in cluster.effects[-3:], "whoever watches it is told"
    assert set(placed(cluster)) == {"/u/job/0", "/u/job/1"}


def test_a_named_job_that_does_not_succeed_ends_all_that_need_its_success(cluster: InMemoryCluster) -> None:
    cluster.submit("/u/a")
    cluster.submit("/u/b", after="/u/a:ok")
    cluster.submit("/u/c", after="/u/a:ok,/u/b:ok")
    cluster.submit("/u/d", after="/u/b:any")
    cluster.submit("/u/b/child")
    cluster.do(StopRequested(JobId("/u/a"), keep_children=True))  # no others' children
    job = cluster.job("/u/b")
    assert (job.state, job.waits) == (JobState.UNSCHEDULABLE, "")
    assert job.error == "job /u/a ended (killed); this job needs its success"
    assert cluster.job("/u/b/child").error.startswith("its parent /u/b ended (unschedulable: job /u/a ended (killed)")
    assert (cluster.job("/u/c").state, placed(cluster)) == (JobState.UNSCHEDULABLE, ["/u/d/0"])


def test_a_job_that_ends_with_its_parent_says_this_rather_than_for_what_it_waited(cluster: InMemoryCluster) -> None:
    cluster.submit()
    cluster.submit("/u/job/a")
    cluster.submit("/u/job/b")
    cluster.submit("/u/job/a/waits", after="/u/job/b:ok")
    cluster.stop(JOB)
    assert cluster.job("/u/job/a/waits").error.startswith("its parent /u/job/a ended")


def test_a_hold_and_a_wait_are_two_and_a_start_time_and_the_limit_of_waiting_go_with_both(
    cluster: InMemoryCluster, restarted
) -> None:
    cluster.submit("/u/a")
    cluster.submit(after="/u/a:ok", scheduling_timeout_ms=5_000, start_at_ms=2_000)
    cluster.do(JobHeld(JOB, "ann"))
    cluster.do(JobReleased(JOB))
    assert (placed(cluster), next_deadline(cluster.view)) == (["/u/a/0"], 2_000)
    cluster.now_ms = 60_000
    expire(cluster)
    assert (placed(cluster), cluster.job().state, next_deadline(cluster.view)) == ([], JobState.PENDING, None)
    cluster.do(JobHeld(JOB, "ann"))
    cluster.now_ms = 70_000
    end(cluster, "/u/a")
    assert (placed(cluster), next_deadline(cluster.view)) == ([], 75_000)
    cluster.view = restarted(cluster.view)
    expire(cluster)
    assert next_deadline(cluster.view) == 75_000
    cluster.do(JobReleased(JOB))
    assert (placed(cluster), cluster.job().ready_at_ms) == (["/u/job/0"], 70_000)


def test_a_job_that_has_ended_already_is_not_waited_for(cluster: InMemoryCluster) -> None:
    cluster.submit("/u/a")
    end(cluster, "/u/a")
    cluster.submit("/u/b")
    end(cluster, "/u/b", TaskState.FAILED)
    cluster.submit(after="/u/a:ok,/u/b:any")
    assert placed(cluster) == ["/u/job/0"]
    cluster.view.forget_job(JobId("/u/a"))
    assert without_removed(cluster.view, cluster.job().spec).after == "/u/b:any", "that may run again"


def test_what_could_never_start_is_refused(cluster: InMemoryCluster) -> None:
    cluster.launch("/u/a")
    cluster.submit("/u/b")
    end(cluster, "/u/b", TaskState.FAILED)
    cluster.submit("/u/c", after="/u/a:ok")
    refusals: tuple[tuple[str, str, type[MarinError], str], ...] = (
        ("/u/job", "/u/job:any", InvalidRequest, "job /u/job cannot start after /u/job: that is the job itself"),
        ("/u/a/c", "/u/a:ok", InvalidRequest, "the job itself or its parent; name another job"),
        (
            "/u/a/c",
            "/u/c:ok",
            Conflict,
            "/u/a/c cannot start after /u/c, which waits for /u/a: this job ends with that",
        ),
        ("/u/job", "/u/none:ok", NotFound, "job /u/job cannot start after /u/none: there is no such job"),
        ("/u/job", "/u/b:ok", Conflict, r"it has ended \(failed\); requeue that one first, or use /u/b:any"),
    )
    for name, after, kind, why in refusals:
        with pytest.raises(kind, match=why):
            cluster.submit(name, after=after)
    assert list(cluster.view.jobs) == ["/u/a", "/u/b", "/u/c"]
