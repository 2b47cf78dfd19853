"""Requests that could never be met are refused with the largest there is."""

from dataclasses import replace

import pytest

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from iris.sched.feasible import impossible_reason
from iris.testing.scheduling import resources

LOCAL = (WorkerId("local"), resources(2, 8, 50), {"zone": "a"})
LARGE = (WorkerId("large"), resources(16, 4, 50, Device("gpu", "H100", 4)), {"zone": "b"})


def spec(need=None, **fields) -> JobSpec:
    return JobSpec(JobId("/u/j"), CommandEntrypoint(("true",)), need or resources(), **fields)


def test_nothing_is_known_to_be_impossible_without_workers():
    assert impossible_reason(spec(resources(10_000)), []) is None


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        (resources(2, 8, 50), None),
        (resources(16, 4), None),
        (resources(64), "needs 64 cores; the largest worker (large) has 16"),
        (resources(1, 9), "needs 9 GiB of memory; the largest worker (local) has 8 GiB"),
        (
            resources(1, 1, 51),
            "needs 51 GiB of disk; the largest worker (local) has 50 GiB: ask for less with --disk or "
            "ResourceSpec(disk=...), 0 for none",
        ),
        (resources(device=Device("gpu", "h100", 4)), None),
        (resources(device=Device("gpu", "", 8)), "needs 8 x gpu; the largest worker (large) has 4"),
        (resources(device=Device("gpu", "A100", 1)), "needs 1 x gpu A100; there are gpu H100"),
        (resources(device=Device("tpu", "v4-8", 4)), "needs 4 x tpu v4-8; there are gpu H100"),
        (
            resources(4, 6),
            "needs 6 GiB of memory with all else it asks for on one worker; no worker has all of that together",
        ),
    ],
)
def test_sizes(need, reason):
    assert impossible_reason(spec(need), [LOCAL, LARGE]) == reason


def test_one_worker():
    assert impossible_reason(spec(resources(64)), [LOCAL]) == "needs 64 cores; the largest worker (local) has 2"
    gpu = resources(device=Device("gpu", "H100", 1))
    assert impossible_reason(spec(gpu), [LOCAL]) == "needs 1 x gpu H100; no worker has an accelerator"


def test_the_largest_is_looked_for_among_those_that_meet_the_constraints():
    zone_a = (Constraint("zone", ConstraintOp.EQ, ("a",)),)
    reason = impossible_reason(spec(resources(8), constraints=zone_a), [LOCAL, LARGE])
    assert reason == "needs 8 cores; the largest worker (local) has 2"


def test_constraints():
    zone_c = Constraint("zone", ConstraintOp.EQ, ("c",))
    assert impossible_reason(spec(constraints=(zone_c,)), [LOCAL, LARGE]) == "no worker has zone = c; workers have a, b"
    soft = Constraint("zone", ConstraintOp.EQ, ("c",), soft=True)
    assert impossible_reason(spec(constraints=(soft,)), [LOCAL, LARGE]) is None


def test_a_gang_needs_its_attribute():
    gang = spec(replicas=2, coscheduling_group_by="slice")
    reason = "no worker has the attribute 'slice', by which the gang of 2 is grouped"
    assert impossible_reason(gang, [LOCAL, LARGE]) == reason
    assert impossible_reason(spec(replicas=2, coscheduling_group_by="zone"), [LOCAL]) is None


POOL = ScaleGroup(
    "v5p-64-b",
    Resources(208_000, 448 << 30, 100 << 30, Device("tpu", "v5p-64", 4)),
    hosts_per_slice=8,
    max_slices=2,
    region="us-east5",
    zone="us-east5-b",
    preemptible=True,
)


def tpu_job(replicas: int, variant: str = "v5p-64", **fields: object) -> JobSpec:
    return JobSpec(
        JobId("/ann/train"),
        CommandEntrypoint(("true",)),
        Resources(1000, 1, 0, Device("tpu", variant, 4)),
        replicas=replicas,
        coscheduling_group_by="tpu-name",
        **fields,  # type: ignore[arg-type]
    )


def test_what_a_scale_group_may_have_is_not_refused_although_no_worker_is_there() -> None:
    assert impossible_reason(tpu_job(8), [], (POOL,)) is None
    assert impossible_reason(tpu_job(16), [], (POOL,)) is None
    place = Constraint("zone", ConstraintOp.EQ, ("us-east5-b",))
    assert impossible_reason(tpu_job(8, constraints=(place,)), [], (POOL,)) is None


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (tpu_job(24), "needs 3 slices of 8 hosts; the scale groups that match have 2 at most"),
        (tpu_job(4, "v5p-32"), "needs 4 x tpu v5p-32; there are tpu v5p-64"),
        (
            tpu_job(8, constraints=(Constraint("zone", ConstraintOp.EQ, ("mars-a",)),)),
            "no worker has zone = mars-a; workers have us-east5-b",
        ),
        (
            tpu_job(8, constraints=(Constraint("preemptible", ConstraintOp.EQ, ("false",)),)),
            "no worker has preemptible = false; workers have true",
        ),
        (
            JobSpec(JobId("/ann/big"), CommandEntrypoint(("true",)), Resources(500_000)),
            "needs 500 cores; the largest worker (scale group v5p-64-b) has 208",
        ),
    ],
)
def test_what_no_scale_group_could_ever_have_is_refused_with_what_there_is(job: JobSpec, reason: str) -> None:
    assert impossible_reason(job, [], (POOL,)) == reason


def test_a_worker_that_is_there_counts_besides_the_scale_groups() -> None:
    large = JobSpec(JobId("/ann/big"), CommandEntrypoint(("true",)), Resources(500_000))
    assert impossible_reason(large, [(WorkerId("w1"), Resources(600_000), {})], (POOL,)) is None


def hosts(count: int, name: str) -> list[tuple[WorkerId, Resources, dict[str, str]]]:
    return [(WorkerId(f"{name}-{number}"), POOL.host, {"tpu-name": name}) for number in range(count)]


def test_a_gang_that_no_slice_of_a_scale_group_holds_runs_where_the_workers_that_are_there_do() -> None:
    wide = JobSpec(
        JobId("/u/g"), CommandEntrypoint(("true",)), resources(1), replicas=12, coscheduling_group_by="tpu-name"
    )
    refused = "needs room for 12 tasks in one tpu-name; the largest (scale group {}) has {}"
    small = replace(POOL, name="small", hosts_per_slice=1, host=resources(2, 8), attributes=(("tpu-name", "x"),))
    assert impossible_reason(wide, [], (small,)) == refused.format("small", 2)
    middle = replace(small, name="middle", hosts_per_slice=3)
    for groups in ((small, middle), (middle, small)):
        assert impossible_reason(wide, [], groups) == refused.format("middle", 6)
    assert impossible_reason(wide, hosts(11, "s"), (small,)) == refused.format("small", 2)
    assert impossible_reason(wide, hosts(12, "s"), (small,)) is None
    assert impossible_reason(wide, hosts(6, "s") + hosts(6, "t"), (small,)) == refused.format("small", 2)


def test_workers_that_no_scale_group_has_are_grouped_as_they_are() -> None:
    gang = spec(replicas=50, coscheduling_group_by="rack")
    racked = [(WorkerId("a"), resources(4, 16), {"rack": "1"})]
    assert impossible_reason(gang, racked, (POOL,)) is None


def test_several_groups_add_up_their_slices() -> None:
    other = replace(POOL, name="v5p-64-c", max_slices=1, zone="us-east5-c")
    assert impossible_reason(tpu_job(24), [], (POOL, other)) is None
    reason = "needs 4 slices of 8 hosts; the scale groups that match have 3 at most"
    assert impossible_reason(tpu_job(32), [], (POOL, other)) == reason


def test_only_workers_with_room_for_a_task_count_as_places_of_a_gang() -> None:
    """Ten hosts of one slice of which half are too small hold no gang of ten."""
    wide = JobSpec(
        JobId("/u/g"), CommandEntrypoint(("true",)), resources(1, 4), replicas=10, coscheduling_group_by="tpu-name"
    )
    group = replace(POOL, name="small", hosts_per_slice=1, host=resources(2, 8), attributes=(("tpu-name", "x"),))
    little = [(WorkerId(f"little-{number}"), resources(1, 2), {"tpu-name": "s"}) for number in range(5)]
    apart = [(WorkerId(f"apart-{number}"), POOL.host, {"zone": "s"}) for number in range(5)]
    for others in (little, apart):
        reason = impossible_reason(wide, [*hosts(5, "s"), *others], (group,))
        assert reason == "needs room for 10 tasks in one tpu-name; the largest (scale group small) has 2"
    assert impossible_reason(wide, hosts(10, "s"), (group,)) is None
