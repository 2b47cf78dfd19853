"""Where tasks go, in which order, and what is said of those that wait."""

from typing import Any

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.resources import Device, Resources
from iris.domain.states import PriorityBand, TaskState
from iris.sched import fit
from iris.sched.plan import RoundPlan, plan_round
from support.iris.scheduling import InMemoryCluster, resources

H100 = Device("gpu", "H100", 4)
Jobs = dict[str, dict[str, Any]]


def placed(plan: RoundPlan) -> str:
    return ", ".join(f"{task.rpartition('/u/')[2]} on {worker}" for task, worker in plan.assignments)


def gang(replicas: int, by: str = "slice", **fields: Any) -> dict[str, Any]:
    return {"replicas": replicas, "coscheduling_group_by": by, **fields}


def where(key: str, op: ConstraintOp, value: str, *, soft: bool = False) -> dict[str, Any]:
    return {"constraints": (Constraint(key, op, (value,), soft),)}


ZONES = {name: (resources(cores, 4), {"zone": name}) for name, cores in (("a", 1), ("b", 2))}
SLICES = {
    **{name: (resources(1, 4), {"slice": name[0]}) for name in ("a1", "a2", "b1", "b2", "b3")},
    "alone": (resources(8, 32), {}),
}


@pytest.mark.parametrize(
    ("workers", "jobs", "found", "waiting"),
    [
        # Band, then age, then index.
        (
            {"w": (resources(4, 16), {})},
            {
                "/u/batch": {"band": PriorityBand.BATCH},
                "/u/old": {"replicas": 2},
                "/u/young": {},
                "/u/prod": {"band": PriorityBand.PRODUCTION},
            },
            "prod/0 on w, old/0 on w, old/1 on w, young/0 on w",
            {"/u/batch"},
        ),
        # What does not fit does not hold up what does; what asks for nothing runs on a full worker.
        ({"w": (resources(2, 16), {})},
            {"/u/large": {"need": resources(3)}, "/u/small": {"need": resources(2)}, "/u/free": {"need": Resources()}},
            "small/0 on w, free/0 on w", {"/u/large"}),
        # The fullest worker that has room.
        ({"large": (resources(8, 16), {}), "small": (resources(2, 16), {})},
            {"/u/a": {"need": resources(2)}, "/u/b": {"need": resources(2)}}, "a/0 on small, b/0 on large", set()),
        # Hard constraints exclude, and soft ones prefer.
        (ZONES,
            {"/u/soft": where("zone", ConstraintOp.EQ, "b", soft=True), "/u/hard": where("zone", ConstraintOp.NE, "a")},
            "soft/0 on b, hard/0 on b", set()),
        # A gang is whole in one group, in the one that is left with least; two of a round do not meet.
        (SLICES, {"/u/wide": gang(4), "/u/g": gang(2)}, "g/0 on a1, g/1 on a2", {"/u/wide"}),
        (SLICES, {"/u/g1": gang(3), "/u/g2": gang(2), "/u/g3": gang(2)},
            "g1/0 on b1, g1/1 on b2, g1/2 on b3, g2/0 on a1, g2/1 on a2", {"/u/g3"}),
        (SLICES, {"/u/g": gang(2, **where("slice", ConstraintOp.EQ, "b"))}, "g/0 on b1, g/1 on b2", set()),
    ],
)  # fmt: skip
def test_one_round(
    cluster: InMemoryCluster, workers: dict[str, tuple[Resources, dict[str, str]]], jobs: Jobs, found: str,
    waiting: set[str],
) -> None:  # fmt: skip
    for name, (capacity, attributes) in workers.items():
        cluster.connect(name, capacity, **attributes)
    for name, fields in jobs.items():
        cluster.submit(name, **fields)
    plan = plan_round(cluster.view, 0)
    assert (placed(plan), set(plan.reasons)) == (found, waiting)
    assert plan == plan_round(cluster.view, 0), "the view is not changed"


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
