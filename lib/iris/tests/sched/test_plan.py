"""Where tasks go, in which order, and what is said of those that wait."""

import pytest

from iris.domain.resources import Device, Resources
from iris.domain.states import TaskState
from iris.sched import fit
from iris.sched.plan import RoundPlan, plan_round
from support.iris.scheduling import InMemoryCluster, resources

H100 = Device("gpu", "H100", 4)


def placed(plan: RoundPlan) -> str:
    return ", ".join(f"{task.rpartition('/u/')[2]} on {worker}" for task, worker in plan.assignments)


def test_a_retry_comes_before_later_tasks_of_its_job(cluster: InMemoryCluster) -> None:
    cluster.connect("w", resources(2, 16))
    cluster.launch(replicas=4, max_retries_failure=1)
    cluster.observe("/u/job/1:0", TaskState.FAILED)
    assert placed(cluster.schedule()) == "job/1 on w"


ALL = resources(4, 16, 100, H100)
PARTS = {
    "cpu": (resources(3, 0), "cores"),
    "memory": (resources(0, 12), "memory"),
    "disk": (resources(0, 0, 80), "disk"),
    "accelerators": (resources(0, 0, 0, Device("gpu", "H100", 3)), "H100"),
}


@pytest.mark.parametrize(("need", "word"), PARTS.values(), ids=PARTS)
def test_what_an_attempt_holds_is_given_to_no_other_and_the_rest_is_used_to_the_last(
    cluster: InMemoryCluster, need: Resources, word: str
) -> None:
    cluster.connect("w", ALL)
    cluster.submit("/u/first", need)
    cluster.submit("/u/second", need)
    assert placed(cluster.schedule()) == "first/0 on w"
    cluster.submit("/u/rest", ALL.sub(need))
    plan = cluster.schedule()
    assert (placed(plan), word in str(plan.reasons["/u/second"])) == ("rest/0 on w", True)
    cluster.observe("/u/first/0:0", TaskState.SUCCEEDED)
    assert placed(cluster.schedule()) == "second/0 on w"


def test_thousands_that_fit_nowhere_are_seen_once(cluster: InMemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.connect("w", resources(1, 1))
    cluster.submit(need=resources(2), replicas=5_000)
    asked: list[Resources] = []
    original = fit.Host.fits
    monkeypatch.setattr(fit.Host, "fits", lambda host, need: (asked.append(need), original(host, need))[1])
    plan = plan_round(cluster.view, 0)
    assert plan.reasons == {"/u/job": "needs 2 cores; worker w has 1 of 1 free"}
    assert len(asked) <= 1
