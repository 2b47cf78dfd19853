"""The limit on each user's running jobs: who is held back, and until when."""

import pytest

from iris.domain.entities import JobsPerUser
from iris.domain.states import PriorityBand, TaskState
from support.iris.scheduling import InMemoryCluster, resources

HELD = "user ann has {0} running jobs; the cluster allows {0} (jobs_per_user.max_running)"


@pytest.fixture
def two(cluster: InMemoryCluster) -> InMemoryCluster:
    """Room for 16 tasks, of which each user may have two jobs."""
    cluster.view.jobs_per_user = JobsPerUser(max_running=2)
    cluster.connect("w", resources(16, 64))
    return cluster


def placed(cluster: InMemoryCluster) -> list[str]:
    return [str(task) for task, _ in cluster.schedule().assignments]


def test_further_jobs_of_a_user_wait_and_others_do_not(two: InMemoryCluster) -> None:
    two.submit("/ann/a", replicas=9)  # more than one turn, when there are others
    for name in ("/ann/b", "/ann/c", "/ann/d", "/bob/x"):
        two.submit(name)
    plan = two.schedule()
    assert {task.rpartition("/")[0] for task, _ in plan.assignments} == {"/ann/a", "/ann/b", "/bob/x"}
    assert len(plan.assignments) == 11
    assert plan.reasons == {"/ann/c": HELD.format(2), "/ann/d": HELD.format(2)}
    two.observe("/ann/b/0:0", TaskState.SUCCEEDED)
    assert placed(two) == ["/ann/c/0"]


def test_child_jobs_start_with_their_roots_limit_reached(two: InMemoryCluster) -> None:
    for name in ("/ann/a", "/ann/b", "/ann/a/child", "/ann/a/child/deep"):
        two.submit(name)
    assert len(placed(two)) == 4


def test_a_gang_counts_and_one_that_is_promised_room(two: InMemoryCluster) -> None:
    two.launch("/bob/all", resources(16), band=PriorityBand.BATCH)
    two.submit("/ann/gang", resources(8), replicas=2, coscheduling_group_by="rack")
    for name in ("/ann/a", "/ann/b", "/ann/c"):
        two.submit(name, resources(8))
    reasons = two.schedule().reasons
    assert [reasons[f"/ann/{name}"] for name in ("a", "b", "c")] == ["waits for attempts on w to end"] * 2 + [
        HELD.format(2)
    ]
