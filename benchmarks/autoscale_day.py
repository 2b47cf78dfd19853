"""A simulated day of up to 2,000 TPU hosts with spot losses and stock-outs, under three policies.

usage: uv run --group dev python benchmarks/autoscale_day.py [hours] [seed] [zones]

Prints one JSON line: of each policy the hours that tasks waited, the wait for the first start, the share of paid hosts
with work, paid host hours, and numbers of slices. "ancestor" looks every 10 s, grows a group once a minute, releases
one idle slice in five minutes, and pauses a group for 5 to 15 minutes after a refusal or a loss. "minute" is the plan
once a minute, with pauses of a minute.
"""

import json
import random
import sys
import time

from iris.autoscale.rules import AutoscaleRules
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import ScaleGroup
from iris.domain.states import PriorityBand
from iris.sim.workload.cloud import Cloud, Weather, draw_dry_times
from iris.sim.workload.elastic import ElasticResult, simulate_elastic
from iris.sim.workload.model import Arrival
from iris.sim.workload.policies import AncestorPolicy, FixedMinute, PlanPolicy, Policy
from iris.sim.workload.report import wait_figures

GIB = 1 << 30
V5E_16 = Device("tpu", "v5litepod-16", 4)
SLICES_PER_ZONE, HOSTS = 50, 4


def zones(count: int, hours: float, seed: int) -> list[tuple[ScaleGroup, Weather]]:
    """Return spot groups of v5e-16 in zones, half of which are often short of capacity."""
    found = []
    for number in range(count):
        group = ScaleGroup(
            f"v5e-{number}", Resources(112_000, 192 * GIB, 0, V5E_16), HOSTS, max_slices=SLICES_PER_ZONE,
            region=f"r{number}", zone=f"r{number}-a", preemptible=True, hourly_price=4.0 * HOSTS,
        )  # fmt: skip
        source = random.Random(f"weather {seed} {number}")
        wet_h, dry_h = (2.0, 1.0) if number % 2 == 0 else (6.0, 0.3)
        dry = draw_dry_times(source, hours, wet_h, dry_h)
        found.append((group, Weather(dry, loss_per_hour=0.05, dry_loss_per_hour=1.0)))
    return found


def jobs(hours: float, seed: int, scale: float) -> list[Arrival]:
    """Return gangs of one to four slices, and bursts of single tasks: more by day than by night."""
    source, found, at_s = random.Random(f"jobs {seed}"), list[Arrival](), 0.0
    need = Resources(100_000, 150 * GIB, 0, V5E_16)
    while (at_s := at_s + source.expovariate(120 * scale / 3600)) < hours * 3600:
        by_day = 0.25 + 0.75 * (8 <= at_s / 3600 % 24 < 20)
        if source.random() > by_day:
            continue
        user, kind = source.choice(["ann", "bob", "joe", "eve"]), source.random()
        if kind < 0.75:
            slices = source.choice([1, 1, 1, 1, 2, 4])
            seconds = min(5400 * source.lognormvariate(0, 0.8), 6 * 3600)
            found.append(Arrival(at_s, user, PriorityBand.INTERACTIVE, HOSTS * slices, need, seconds, "tpu-name"))
        else:
            found.append(
                Arrival(at_s, user, PriorityBand.BATCH, source.randint(1, 16), need, source.uniform(120, 1200))
            )
    return found


def figures(result: ElasticResult) -> dict[str, float]:
    """Return the figures of a policy."""
    wait = wait_figures(result.workload.waits)
    return {
        "waiting_task_h": round(result.waiting_task_s / 3600, 1),
        "first_wait_p50_s": round(wait.p50, 1),
        "first_wait_p95_s": round(wait.p95, 1),
        "never_started": wait.never_started,
        "ended_tasks": result.workload.ended_tasks,
        "paid_host_h": round(result.host_s / 3600, 1),
        "busy": round(result.busy_host_s / max(result.host_s, 1), 4),
        "paid_host_h_a_task": round(result.host_s / 3600 / max(result.workload.ended_tasks, 1), 4),
        "created": result.created,
        "refused": result.refused,
        "lost": result.lost,
        "released": result.released,
    }


def main() -> None:
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else 24.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    places = zones(count, hours, seed)
    groups = [group for group, _ in places]
    rules = AutoscaleRules(creates_per_minute=600, creates_per_hour=10_000)
    policies: dict[str, Policy] = {
        "plan": PlanPolicy(groups, rules), "ancestor": AncestorPolicy(groups), "minute": FixedMinute(groups, rules)
    }  # fmt: skip
    result: dict[str, object] = {"benchmark": "autoscale_day", "hours": hours, "seed": seed}
    result["hosts"] = count * SLICES_PER_ZONE * HOSTS
    found: dict[str, dict[str, float]] = {}
    for name, policy in policies.items():
        begin = time.perf_counter()
        cloud = Cloud(places, seed)
        found[name] = figures(simulate_elastic(jobs(hours, seed, count / 10), cloud, policy, hours * 3600))
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    plan, others = found["plan"], (found["ancestor"], found["minute"])
    holds = all(plan[key] <= other[key] for other in others for key in ("waiting_task_h", "paid_host_h"))
    print(json.dumps({**result, "holds": holds, **found}))


if __name__ == "__main__":
    main()
