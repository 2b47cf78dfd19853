"""Duration of the autoscaler's decisions (`demands` and `plan`), without processes or a store.

usage: uv run --group dev python benchmarks/autoscale_plan.py [repeats]

Prints one JSON line: milliseconds of processor time of each shape (median of the repeats), its limit, and the number of
created slices.
"groups_200" is 200 groups, 5,000 slices (4,000 busy, 500 idle, 500 on their way) and 10,000 jobs of 100 kinds.
"gangs_1000" is 1,000 gangs, for which 1,000 slices boot already.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable

from iris.autoscale.model import SliceRecord, SliceState, SliceUse
from iris.autoscale.plan import plan
from iris.autoscale.planning.demand import demands
from iris.autoscale.rules import AutoscaleRules
from iris.core.rules.reduce import reduce
from iris.core.state.view import ClusterView
from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.events import JobSubmitted
from iris.domain.ids import JobId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup

GB = 1 << 30
NOW_MS = 10_000_000
COMMAND = CommandEntrypoint(("true",))
VARIANTS = ("v4-8", "v4-16", "v4-32", "v5p-8", "v5p-16", "v5p-32", "v6e-8", "v6e-16")
HOSTS = (1, 2, 4, 1, 2, 4, 1, 4)

Shape = tuple[ClusterView, list[ScaleGroup], dict[str, SliceRecord], dict[str, SliceUse]]


def tpu(number: int, count: int = 4) -> Device:
    return Device("tpu", VARIANTS[number % len(VARIANTS)], count)


def group_of(number: int, most: int) -> ScaleGroup:
    """Return a group of TPUs, or for every fifth number of CPUs, in one of 20 zones."""
    zone, place = number % 20, {"region": f"r{number % 20 // 3}", "zone": f"z{number % 20}"}
    if number % 5 == 0:
        return ScaleGroup(f"cpu-{number}", Resources(32_000, 128 * GB), max_slices=most, **place)
    host, kind = Resources(200_000, 400 * GB, 0, tpu(number)), number % len(VARIANTS)
    return ScaleGroup(f"tpu-{number}-{zone}", host, HOSTS[kind], max_slices=most, preemptible=True, **place)


def submit(view: ClusterView, name: str, need: Resources, replicas: int = 1, **fields: object) -> None:
    spec = JobSpec(JobId(name), COMMAND, need, replicas=replicas, **fields)
    view.apply(reduce(view, JobSubmitted(spec), NOW_MS).changes)


def slices_of(groups: list[ScaleGroup], count: int, state_of: Callable[[int], SliceState]) -> dict[str, SliceRecord]:
    names = [(f"{group.name}-{at}", group.name) for at in range(-(-count // len(groups))) for group in groups][:count]
    return {
        name: SliceRecord(name, group, state_of(at), NOW_MS - 1000, NOW_MS - 1000, used_ms=NOW_MS)
        for at, (name, group) in enumerate(names)
    }


def groups_200() -> Shape:
    view, groups = ClusterView(), [group_of(number, 50) for number in range(200)]
    for number in range(10_000):
        kind = number % 100
        where = (Constraint("zone", ConstraintOp.EQ, (f"z{kind % 20}",)),) if kind % 3 == 0 else ()
        if kind % 2:
            submit(view, f"/u{number % 7}/j{number}", Resources(1000 + kind * 100, 4 * GB), 4, constraints=where)
        else:
            hosts = HOSTS[kind % len(VARIANTS)]
            need, by = Resources(8000 + kind, 16 * GB, 0, tpu(kind)), "tpu-name" if hosts > 1 else ""
            submit(view, f"/u{number % 7}/j{number}", need, hosts, coscheduling_group_by=by, constraints=where)
    states = [SliceState.JOINED] * 9 + [SliceState.BOOTING]
    slices = slices_of(groups, 5000, lambda at: states[at // 500 % 10])
    sizes = {group.name: group.hosts_per_slice for group in groups}
    use = {
        name: SliceUse(sizes[record.group], 0 if at % 9 == 0 else sizes[record.group])
        for at, (name, record) in enumerate(slices.items())
        if record.state is SliceState.JOINED
    }
    return view, groups, slices, use


def gangs_1000() -> Shape:
    view = ClusterView()
    group = ScaleGroup("v4-16", Resources(200_000, 400 * GB, 0, tpu(1)), 2, max_slices=1000)
    for number in range(1000):
        need = Resources(8000, 16 * GB, 0, tpu(1))
        submit(view, f"/u/gang-{number}", need, 2, coscheduling_group_by="tpu-name")
    return view, [group], slices_of([group], 1000, lambda _: SliceState.BOOTING), {}


def measure(build: Callable[[], Shape], repeats: int) -> dict[str, float]:
    view, groups, slices, use = build()
    times: dict[str, list[float]] = {"demands_ms": [], "plan_ms": []}
    created = released = kinds = 0
    for _ in range(repeats):
        gc.collect()
        begin = time.thread_time()
        waiting = demands(view, NOW_MS)
        middle = time.thread_time()
        made = plan(NOW_MS, waiting, groups, slices, use, {}, (), AutoscaleRules(creates_per_minute=10_000), ())
        times["demands_ms"].append((middle - begin) * 1e3)
        times["plan_ms"].append((time.thread_time() - middle) * 1e3)
        created, released, kinds = len(made.create), len(made.release), len(waiting)
    found = {name: round(statistics.median(values), 2) for name, values in times.items()}
    return {**found, "kinds": kinds, "created": created, "released": released}


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    result = {build.__name__: measure(build, repeats) for build in (groups_200, gangs_1000)}
    holds = all(shape["demands_ms"] + shape["plan_ms"] <= 100 for shape in result.values())
    print(json.dumps({"benchmark": "autoscale_plan", "bound_ms": 100, "holds": holds, **result}))


if __name__ == "__main__":
    main()
