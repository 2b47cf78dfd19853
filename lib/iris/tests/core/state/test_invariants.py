"""The checks themselves: each kind of damage is found and named."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from iris.core.state import invariants
from iris.core.state.view import ClusterView
from iris.domain.endpoints import RegisteredEndpoint
from iris.domain.errors import InvariantViolation
from iris.domain.states import JobState, TaskState
from support.iris.scheduling import InMemoryCluster, resources


def lose_booking(view: ClusterView) -> None:
    view.loads["w"].remove(view.bookings.pop("/u/job/0:0"))


def kill_task(view: ClusterView) -> None:
    tasks = view.tasks["/u/job"]
    tasks[0] = replace(tasks[0], state=TaskState.KILLED)


def shift_sum(view: ClusterView) -> None:
    view.loads["w"].cpu_millis -= 1


def change_job(view: ClusterView, **fields: object) -> None:
    view.jobs["/u/job"] = replace(view.jobs["/u/job"], **fields)


def shrink(view: ClusterView) -> None:
    view.workers["w"] = replace(view.workers["w"], capacity=resources(3, 16))


def register(view: ClusterView) -> None:
    endpoint = RegisteredEndpoint("/u/job/x", "/u/job/0:7", "h:1")
    view.endpoints.apply({endpoint.endpoint_id: endpoint})


def orphan(view: ClusterView) -> None:
    del view.jobs["/u/job"], view.tasks["/u/job"], view.live_jobs["/u/job"]


def run_twice(view: ClusterView) -> None:
    booking = view.bookings.pop("/u/job/0:0")
    view.loads["w"].remove(booking)
    booking.attempt_id = "/u/job/1:7"
    view.loads["w"].add(booking)
    view.bookings["/u/job/1:7"] = booking


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda view: change_job(view, task_counts=(0,) * 11), "/u/job: counts {}, tasks"),
        (lose_booking, "/u/job/0:0: lives and holds nothing"),
        (kill_task, "/u/job/0:0: holds resources and does not live"),
        (shift_sum, "w: committed"),
        (shrink, "committed of"),
        (lambda view: view.pending["/u/job"].pop(), "pending index"),
        (lambda view: view.queue.clear(), "queue []"),
        (lambda view: change_job(view, state=JobState.FAILED, error="x", finished_at_ms=9_999),
            "failed with tasks that have not ended"),
        (run_twice, "/u/job/1: 2 attempts may run at once"),
        (register, "endpoint /u/job/x: its attempt /u/job/0:7 does not live"),
    ],
)  # fmt: skip
def test_damage_is_found_and_named(cluster: InMemoryCluster, damage: Callable[[ClusterView], None], words: str) -> None:
    cluster.launch(replicas=6)
    damage(cluster.view)
    with pytest.raises(InvariantViolation) as caught:
        invariants.check(cluster.view)
    assert words in str(caught.value)
    cluster = InMemoryCluster()
    cluster.submit()
    cluster.submit("/u/job/child")
    orphan(cluster.view)
    with pytest.raises(InvariantViolation, match="/u/job/child: lives although its parent /u/job has ended"):
        invariants.check(cluster.view)
