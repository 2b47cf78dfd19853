"""A long queue of equal jobs: a round ends where nothing more fits, and decides as one that looks at every job."""

import random

import pytest

from iris.domain.states import PriorityBand, TaskState
from iris.sched import plan as plan_module
from iris.sched.order import JobTurn, turns
from iris.sched.plan import plan_round
from iris.sched.reserve import RESERVE_AFTER_MS
from support.iris.scheduling import InMemoryCluster, resources


def looked_at(cluster: InMemoryCluster, now_ms: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many turns a round takes."""
    seen: list[JobTurn] = []
    with monkeypatch.context() as patch:
        patch.setattr(plan_module, "turns", lambda *given: (seen.append(turn) or turn for turn in turns(*given)))
        plan_round(cluster.view, now_ms)
    return len(seen)


def test_jobs_behind_the_first_that_fits_nowhere_are_not_looked_at(cluster, monkeypatch) -> None:
    cluster.connect("w", resources(2, 64))
    for number in range(100):
        cluster.submit(f"/u/job-{number}")
    assert looked_at(cluster, cluster.now_ms, monkeypatch) == 3
    plan = cluster.schedule()
    assert [task for task, _ in plan.assignments] == ["/u/job-0/0", "/u/job-1/0"]
    assert len(plan.reasons) == 98
    assert plan.reasons["/u/job-99"].startswith("needs 1 core; worker w has 0 of 2 free")
    assert "/u/job-0" not in plan.reasons
    cluster.stop("/u/job-99")
    assert "/u/job-99" not in plan.reasons


def test_where_one_job_differs_or_has_waited_long_all_are_looked_at(cluster, monkeypatch) -> None:
    cluster.connect("w", resources(1, 64))
    for number in range(10):
        cluster.submit(f"/u/job-{number}")
    assert looked_at(cluster, cluster.now_ms + RESERVE_AFTER_MS, monkeypatch) == 10
    small = cluster.submit("/u/small", resources(0))
    assert looked_at(cluster, cluster.now_ms, monkeypatch) == 11
    assert (f"{small}/0", "w") in cluster.schedule().assignments


@pytest.mark.parametrize("seed", range(60))
def test_a_round_decides_the_same_as_one_that_looks_at_every_job(seed: int, cluster, monkeypatch) -> None:
    chance = random.Random(seed)
    for number in range(chance.randint(1, 3)):
        cluster.connect(f"w{number}", resources(chance.randint(1, 4), 64))
    users = chance.choice((("u",), ("u", "v", "w")))
    for number in range(chance.randint(1, 25)):
        cluster.submit(
            f"/{chance.choice(users)}/job-{number}",
            resources(1 if chance.random() < 0.97 else 2),
            replicas=chance.randint(1, 4),
            band=chance.choice(list(PriorityBand)),
        )
    for _ in range(4):
        quick = plan_round(cluster.view, cluster.now_ms)
        thorough = plan_round(cluster.view, cluster.now_ms, every_job=True)
        assert quick.assignments == thorough.assignments
        assert quick.preemptions == thorough.preemptions
        assert dict(quick.reasons) == dict(thorough.reasons)
        cluster.schedule()
        live = [booking.attempt_id for booking in cluster.view.bookings.values() if not booking.stopping]
        for attempt in chance.sample(live, len(live) // 2):
            cluster.observe(attempt, TaskState.SUCCEEDED)
