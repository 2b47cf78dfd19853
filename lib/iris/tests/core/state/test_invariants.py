"""The checks themselves: each kind of damage is found and named."""

from dataclasses import replace

import pytest

from iris.core.state import invariants
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.errors import InvariantViolation
from iris.domain.states import JobState, TaskState
from iris.testing.scheduling import resources


def broken(cluster) -> str:
    with pytest.raises(InvariantViolation) as caught:
        invariants.check(cluster.view)
    return str(caught.value)


@pytest.fixture
def running(cluster):
    cluster.submit(replicas=6)
    cluster.schedule()
    return cluster


def test_counts(running):
    running.view.jobs["/u/job"] = replace(running.job(), task_counts=(0,) * 11)
    assert "/u/job: counts {}, tasks" in broken(running)


def test_a_live_task_without_resources(running):
    booking = running.view.bookings.pop("/u/job/0:0")
    running.view.loads["w"].remove(booking)
    assert "/u/job/0:0: lives and holds nothing" in broken(running)


def test_resources_without_a_live_task(running):
    tasks = running.view.tasks["/u/job"]
    tasks[0] = replace(tasks[0], state=TaskState.KILLED)
    assert "/u/job/0:0: holds resources and does not live" in broken(running)


def test_sums_of_a_worker(running):
    running.view.loads["w"].cpu_millis -= 1
    assert "w: committed" in broken(running)


def test_capacity(running):
    worker = running.view.workers["w"]
    running.view.workers["w"] = replace(worker, capacity=resources(3, 16))
    assert "committed of" in broken(running)


def test_queue_and_pending(running):
    running.view.pending["/u/job"].pop()
    assert "pending index" in broken(running)
    running.view.pending["/u/job"].append(-4)
    invariants.check(running.view)
    running.view.queue.clear()
    assert "queue []" in broken(running)


def test_an_ended_job_with_living_tasks(running):
    running.view.jobs["/u/job"] = replace(running.job(), state=JobState.FAILED, error="x", finished_at_ms=9_999)
    assert "failed with tasks that have not ended" in broken(running)


def test_an_orphan(cluster):
    cluster.submit()
    cluster.submit("/u/job/child")
    del cluster.view.jobs["/u/job"], cluster.view.tasks["/u/job"], cluster.view.live_jobs["/u/job"]
    assert "/u/job/child: lives although its parent /u/job has ended" in broken(cluster)


def test_an_endpoint_of_an_attempt_that_does_not_live(running):
    endpoint = RegisteredEndpoint("/u/job/x", "/u/job/0:7", "h:1")
    running.view.endpoints.apply({endpoint.endpoint_id: endpoint})
    assert "endpoint /u/job/x: its attempt /u/job/0:7 does not live" in broken(running)


def test_two_attempts_of_one_task(running):
    running.stop("/u/job")
    booking = running.view.bookings["/u/job/0:0"]
    running.view.loads["w"].remove(booking)
    booking.attempt_id = "/u/job/1:7"
    running.view.loads["w"].add(booking)
    running.view.bookings["/u/job/1:7"] = running.view.bookings.pop("/u/job/0:0")
    assert "/u/job/1: 2 attempts may run at once" in broken(running)
