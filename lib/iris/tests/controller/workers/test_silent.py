from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iris.controller.workers.sessions import Sessions
from iris.controller.workers.silent import silent_attempts
from iris.domain.entities import SilentAttempt
from iris.domain.events import Preempted, WorkerDisconnected, WorkerHeard, WorkerLate, WorkerTroubled
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.states import TaskState
from support.iris.scheduling import InMemoryCluster, resources

JOB, W, V = JobId("/u/job"), WorkerId("w"), WorkerId("v")


@pytest.fixture
def two() -> InMemoryCluster:
    """A job with a task that runs on w, and one that w was told to start."""
    cluster = InMemoryCluster()
    cluster.connect("w", resources(2, 8))
    cluster.submit(replicas=2)
    cluster.schedule()
    cluster.observe("/u/job/0:0", TaskState.RUNNING)
    return cluster


def silent(cluster: InMemoryCluster, job_id: JobId = JOB) -> list[SilentAttempt]:
    sessions = SimpleNamespace(
        silent_ms=lambda worker_id: {W: 1500, V: 2500}[worker_id],
        fenced_in_ms=lambda worker_id, spec: spec.fence_after_ms + {W: 1, V: 2}[worker_id],
    )
    return list(silent_attempts(cluster.view, cast(Sessions, sessions), job_id))


def alone(attempt: str, *, is_wanted: bool, fenced_in_ms: int = 0, trouble: str = "") -> SilentAttempt:
    return SilentAttempt(cast(Any, attempt), W, 1500, is_wanted, fenced_in_ms, trouble)


def test_a_worker_that_is_heard_tells_only_its_trouble_and_one_that_is_not_no_more(two: InMemoryCluster) -> None:
    assert silent(two) == []
    two.do(WorkerTroubled(W, "a", "its guardian is suspended"))
    assert [item.trouble for item in silent(two)] == ["its guardian is suspended"] * 2
    two.do(WorkerDisconnected(W, "a"))
    assert silent(two) == [alone("/u/job/0:0", is_wanted=True), alone("/u/job/1:0", is_wanted=True)]


@pytest.mark.parametrize("say", [lambda: WorkerLate(W, 10_000), lambda: WorkerDisconnected(W, "a")])
def test_what_is_to_be_stopped_is_not_wanted(two: InMemoryCluster, say: Callable[[], Any]) -> None:
    two.observe("/u/job/1:0", TaskState.RUNNING)
    two.stop("/u/job")
    two.do(say())
    assert silent(two) == [alone("/u/job/0:0", is_wanted=False), alone("/u/job/1:0", is_wanted=False)]


def test_an_earlier_attempt_that_was_found_again_is_told_and_not_wanted(two: InMemoryCluster) -> None:
    two.connect("v", resources(2, 8))
    two.submit("/u/other", resources(0.1))
    two.do(WorkerLate(W, 10_000))
    two.schedule()
    told = silent(two)
    assert alone("/u/job/1:0", is_wanted=False) in told, "w may have begun what went elsewhere"
    two.do(WorkerHeard(W))
    assert silent(two) == [], "it is heard, and has been told to stop that"
    two.observe("/u/job/1:0", TaskState.RUNNING, worker_id=W)
    assert silent(two) == [], "now that is stopped"
    two.do(WorkerLate(W, 10_000))
    assert silent(two) == [alone("/u/job/0:0", is_wanted=True), alone("/u/job/1:0", is_wanted=False)]
    assert silent(two, JobId("/u/other")) == []


def test_of_an_exclusive_job_it_is_said_when_it_will_have_ended_and_once_it_has_nothing_is_left() -> None:
    cluster = InMemoryCluster()
    cluster.connect("w", resources(2, 8))
    cluster.submit(exclusive=True, fence_after_ms=30_000)
    cluster.schedule()
    cluster.observe("/u/job/0:0", TaskState.RUNNING)
    cluster.do(WorkerDisconnected(W, "a"))
    assert silent(cluster) == [alone("/u/job/0:0", is_wanted=True, fenced_in_ms=30_001)]
    cluster.observe("/u/job/0:0", TaskState.SUCCEEDED)
    assert silent(cluster) == []


def test_each_attempt_of_a_task_that_waits_again_is_told_once(two: InMemoryCluster) -> None:
    two.connect("v", resources(2, 8))
    two.do(WorkerLate(W, 10_000))
    two.schedule()
    two.do(WorkerHeard(W))
    two.do(Preempted(AttemptId("/u/job/1:1"), "more urgent work"))
    assert two.task("/u/job/1").state is TaskState.PENDING
    for worker_id in (W, V):
        two.do(WorkerDisconnected(worker_id, "a"))
    assert sorted(item.attempt_id for item in silent(two)) == ["/u/job/0:0", "/u/job/1:0", "/u/job/1:1"]
