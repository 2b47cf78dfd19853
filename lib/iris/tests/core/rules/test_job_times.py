"""A job begins with the first of its tasks and ends with the last; what decides from outside decides now."""

import pytest

from iris.domain.states import FailureKind, JobState, TaskState
from iris.testing.scheduling import InMemoryCluster, resources


@pytest.fixture
def cluster() -> InMemoryCluster:
    found = InMemoryCluster()
    found.connect("w1", resources(8, 8))
    return found


def test_one_that_fails_at_once_has_begun(cluster: InMemoryCluster) -> None:
    job_id = cluster.submit()
    cluster.schedule()
    cluster.now_ms = 90_000
    cluster.observe(
        "/u/job/0:0", TaskState.FAILED, started_at_ms=5_000, at_ms=5_040, failure_kind=FailureKind.USER, exit_code=1
    )
    job = cluster.job(job_id)
    assert (job.state, job.started_at_ms, job.finished_at_ms) == (JobState.FAILED, 5_000, 5_040)


def test_one_whose_end_is_heard_late_ended_when_its_last_task_did(cluster: InMemoryCluster) -> None:
    job_id = cluster.submit(replicas=2)
    cluster.schedule()
    cluster.observe("/u/job/0:0", TaskState.RUNNING, at_ms=1_003)
    cluster.now_ms = 90_000
    cluster.observe("/u/job/1:0", TaskState.SUCCEEDED, started_at_ms=4_000, at_ms=7_000)
    cluster.observe("/u/job/0:0", TaskState.SUCCEEDED, at_ms=6_000)
    job = cluster.job(job_id)
    assert (job.state, job.started_at_ms, job.finished_at_ms) == (JobState.SUCCEEDED, 1_003, 7_000)


def test_a_stop_is_decided_now(cluster: InMemoryCluster) -> None:
    job_id = cluster.submit()
    cluster.now_ms = 2_000
    cluster.stop(job_id)
    job = cluster.job(job_id)
    assert (job.state, job.started_at_ms, job.finished_at_ms) == (JobState.KILLED, 0, 2_000)


def test_a_worker_whose_clock_is_ahead_ends_nothing_in_the_future(cluster: InMemoryCluster) -> None:
    job_id = cluster.submit()
    cluster.schedule()
    now = cluster.now_ms
    cluster.observe("/u/job/0:0", TaskState.SUCCEEDED, started_at_ms=now + 5_000, at_ms=now + 9_000)
    job = cluster.job(job_id)
    assert (job.started_at_ms, job.finished_at_ms) == (now, now)
    assert cluster.task().finished_at_ms == now
