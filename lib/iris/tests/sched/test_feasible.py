"""Requests that could never be met are refused with the largest there is."""

from dataclasses import replace
from typing import Any

import pytest

from iris.domain.constraints import DISK_SIZE_ATTRIBUTE, Constraint, ConstraintOp
from iris.domain.ids import JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.runtime import PackageSource, TaskRuntime
from iris.domain.scale_groups import GROUP_ATTRIBUTE, ScaleGroup
from iris.sched.feasible import WorkerCapacity, impossible_reason, unholdable_reason
from iris.sched.pythons import PYTHON_VERSIONS_ATTRIBUTE, explain_python
from support.iris.scheduling import resources

LOCAL = (WorkerId("local"), resources(2, 8, 50), {"zone": "a"})
LARGE = (WorkerId("large"), resources(16, 4, 50, Device("gpu", "H100", 4)), {"zone": "b"})
BOTH = (LOCAL, LARGE)
V5P_64 = Device("tpu", "v5p-64", 4)
PLACE: dict[str, Any] = {"region": "us-east5", "zone": "us-east5-b", "preemptible": True}
POOL = ScaleGroup("v5p-64-b", resources(208, 448, 100, V5P_64), hosts_per_slice=8, max_slices=2, **PLACE)


def spec(need: Resources | None = None, **fields: Any) -> JobSpec:
    return JobSpec(JobId("/u/j"), CommandEntrypoint(("true",)), need or resources(), **fields)


def where(key: str, value: str, *, soft: bool = False) -> dict[str, Any]:
    return {"constraints": (Constraint(key, ConstraintOp.EQ, (value,), soft=soft),)}


@pytest.mark.parametrize(
    ("job", "workers", "reason"),
    [
        (spec(resources(10_000)), (), None),  # nothing is known
        (spec(resources(2, 8, 50)), BOTH, None),
        (spec(resources(16, 4)), BOTH, None),
        (spec(resources(64)), BOTH, "needs 64 cores; the largest worker (large) has 16"),
        (spec(resources(64)), (LOCAL,), "needs 64 cores; the largest worker (local) has 2"),
        (spec(resources(1, 9)), BOTH, "needs 9 GiB of memory; the largest worker (local) has 8 GiB"),
        (
            spec(resources(1, 1, 51)),
            BOTH,
            "needs 51 GiB of disk; the largest worker (local) has 50 GiB: ask for less with --disk or "
            "ResourceSpec(disk=...), 0 for none",
        ),
        # What is used of a disk now may be free then.
        (spec(resources(1, 1, 51)), ((*LOCAL[:2], {DISK_SIZE_ATTRIBUTE: str(51 << 30)}),), None),
        (spec(resources(device=Device("gpu", "h100", 4))), BOTH, None),
        (spec(resources(device=Device("gpu", "", 8))), BOTH, "needs 8 x gpu; the largest worker (large) has 4"),
        (spec(resources(device=Device("gpu", "A100", 1))), BOTH, "needs 1 x gpu A100; there are gpu H100"),
        (spec(resources(device=Device("tpu", "v4-8", 4))), BOTH, "needs 4 x tpu v4-8; there are gpu H100"),
        (spec(resources(device=Device("gpu"))), (LOCAL,), "needs 1 x gpu; no worker has an accelerator"),
        (spec(resources(4, 6)), BOTH,
            "needs 6 GiB of memory together with its other needs on one worker; no worker has all of them"),
        # The largest is looked for among those that meet the constraints.
        (spec(resources(8), **where("zone", "a")), BOTH, "needs 8 cores; the largest worker (local) has 2"),
        (spec(**where("zone", "c")), BOTH, "no worker has zone = c; workers have a, b"),
        (spec(**where("zone", "c", soft=True)), BOTH, None),
        (spec(replicas=2, coscheduling_group_by="slice"), BOTH,
            "no worker has the attribute 'slice', by which the gang of 2 is grouped; workers have zone"),
        (spec(replicas=2, coscheduling_group_by="zone"), (LOCAL,), None),
        (spec(runtime=TaskRuntime(python="3.13")), ((*LOCAL[:2], {PYTHON_VERSIONS_ATTRIBUTE: "3.11"}),),
            "needs Python 3.13; the workers have 3.11"),
    ],
)  # fmt: skip
def test_what_no_worker_could_ever_run(job: JobSpec, workers: tuple[WorkerCapacity, ...], reason: str | None) -> None:
    assert impossible_reason(job, workers) == reason


def tpu_job(replicas: int, variant: str = "v5p-64", **fields: Any) -> JobSpec:
    need = Resources(1000, 1, 0, Device("tpu", variant, 4))
    return spec(need, replicas=replicas, coscheduling_group_by="tpu-name", **fields)


OTHER = replace(POOL, name="v5p-64-c", max_slices=1, zone="us-east5-c")
TOO_MANY = "needs {} slices of 8 hosts; the scale groups that match have {} at most"


@pytest.mark.parametrize(
    ("job", "groups", "reason"),
    [
        (tpu_job(8), (POOL,), None),
        (tpu_job(16), (POOL,), None),
        (tpu_job(8, **where("zone", "us-east5-b")), (POOL,), None),
        (tpu_job(24), (POOL, OTHER), None),  # they add up
        (tpu_job(24), (POOL,), TOO_MANY.format(3, 2)),
        (tpu_job(32), (POOL, OTHER), TOO_MANY.format(4, 3)),
        (tpu_job(4, "v5p-32"), (POOL,), "needs 4 x tpu v5p-32; there are tpu v5p-64"),
        (tpu_job(8, **where("zone", "mars-a")), (POOL,), "no worker has zone = mars-a; workers have us-east5-b"),
        (tpu_job(8, **where("preemptible", "false")), (POOL,),
            "no worker has preemptible = false; workers have true"),
        (spec(resources(500)), (POOL,), "needs 500 cores; the largest worker (scale group v5p-64-b) has 208"),
    ],
)  # fmt: skip
def test_what_no_scale_group_could_ever_have(job: JobSpec, groups: tuple[ScaleGroup, ...], reason: str | None) -> None:
    assert impossible_reason(job, [], groups) == reason


def hosts(count: int, name: str) -> list[WorkerCapacity]:
    return [(WorkerId(f"{name}-{number}"), POOL.host, {"tpu-name": name}) for number in range(count)]


def test_workers_that_are_there_count_besides_the_scale_groups() -> None:
    assert impossible_reason(spec(resources(500)), [(WorkerId("w1"), resources(600), {})], (POOL,)) is None
    racked = [(WorkerId("a"), resources(4, 16), {"rack": "1"})]
    # What no scale group has is grouped as it is.
    assert impossible_reason(spec(replicas=50, coscheduling_group_by="rack"), racked, (POOL,)) is None


def test_a_gang_that_no_slice_of_a_scale_group_holds_runs_where_the_workers_that_are_there_do() -> None:
    wide = spec(resources(1, 4), replicas=12, coscheduling_group_by="tpu-name")
    refused = "needs room for 12 tasks in one tpu-name; the largest (scale group {}) has {}"
    small = replace(POOL, name="small", hosts_per_slice=1, host=resources(2, 8), attributes=(("tpu-name", "x"),))
    assert impossible_reason(wide, [], (small,)) == refused.format("small", 2)
    middle = replace(small, name="middle", hosts_per_slice=3)
    for groups in ((small, middle), (middle, small)):
        assert impossible_reason(wide, [], groups) == refused.format("middle", 6)
    assert impossible_reason(wide, hosts(12, "s"), (small,)) is None
    # Only workers of one group with room for a task count as places.
    little = [(WorkerId(f"little-{number}"), resources(1, 2), {"tpu-name": "s"}) for number in range(6)]
    apart = [(WorkerId(f"apart-{number}"), POOL.host, {"zone": "s"}) for number in range(6)]
    for there in (hosts(11, "s"), hosts(6, "s") + hosts(6, "t"), hosts(6, "s") + little, hosts(6, "s") + apart):
        assert impossible_reason(wide, there, (small,)) == refused.format("small", 2)


GPU = replace(POOL, name="gpu", host=resources(8, 8, device=Device("gpu", "H100", 8)), hosts_per_slice=1, max_slices=3)
THERE = [(WorkerId(f"g{number}"), GPU.host, {GROUP_ATTRIBUTE: "gpu"}) for number in range(3)]
FOUR = resources(1, 1, device=Device("gpu", "H100", 4))


@pytest.mark.parametrize(
    ("job", "beside", "workers", "groups", "reason"),
    [
        (spec(FOUR, replicas=9), 0, (), (), None),  # nothing is known
        (spec(FOUR, replicas=6), 0, THERE, (), None),
        (spec(FOUR, replicas=6), 1, THERE, (), "needs 7 tasks with 4 x gpu H100 at once; the cluster has room for 6"),
        (spec(FOUR, replicas=7), 0, THERE, (GPU,),
            "needs 7 tasks with 4 x gpu H100 at once; the cluster has room for 6"),
        (spec(FOUR, replicas=7), 0, [*THERE, (WorkerId("own"), GPU.host, {})], (GPU,), None),
        (spec(FOUR, **where("zone", "a")), 0, THERE, (GPU,),
            "needs 1 task with 4 x gpu H100 at once; the cluster has room for 0"),
        (tpu_job(8), 8, (), (POOL,), None),
        (tpu_job(8), 16, (), (POOL,), "needs 3 slices of 8 hosts at once; the cluster has room for 2"),
        (tpu_job(8), 0, hosts(8, "s"), (), None),
        (tpu_job(8), 8, hosts(8, "s") + hosts(7, "t"), (),
            "needs 2 slices of 8 hosts at once; the cluster has room for 1"),
    ],
)  # fmt: skip
def test_what_could_never_be_held_at_once(
    job: JobSpec, beside: int, workers: list[WorkerCapacity], groups: tuple[ScaleGroup, ...], reason: str | None
) -> None:
    assert unholdable_reason(job, beside, workers, groups) == reason


OLD, NEW = ({PYTHON_VERSIONS_ATTRIBUTE: versions} for versions in ("3.9,3.11", "3.11,3.12"))


@pytest.mark.parametrize(
    ("runtime", "workers", "there"),
    [
        (TaskRuntime(python="3.13"), [OLD, NEW], "3.9, 3.11, 3.12"),
        (TaskRuntime(python="3.12.7"), [OLD], "3.9, 3.11"),
        (TaskRuntime(python="3.12.7"), [OLD, NEW], ""),
        (TaskRuntime(python=">=3.12.3,<3.13"), [NEW], ""),
        (TaskRuntime(python="3.13"), [OLD, {}], ""),  # one that does not say
        (TaskRuntime(python="3.13"), [], ""),
        (TaskRuntime(), [OLD], ""),
        # What is on the submitter's machine may be anything.
        (TaskRuntime(python="3.13", packages=PackageSource.SUBMITTER, environment_path="/v"), [OLD], ""),
        (TaskRuntime(python="3.13", interpreter="/p"), [OLD], ""),
    ],
)
def test_a_python_that_no_worker_has_is_named(runtime: TaskRuntime, workers: list[dict[str, str]], there: str) -> None:
    reason = f"needs Python {runtime.python}; the workers have {there}" if there else None
    assert explain_python(runtime, workers) == reason
