"""Duration of one scheduling round (`plan_round`) over simulated clusters, without processes or a store.

usage: uv run --group dev python benchmarks/scheduler.py [repeats]

Prints one JSON line: milliseconds of each shape (median of the repeats), its limit, and the number of placed tasks.
Clusters have 1,000 workers unless the name says otherwise; "distinct" means that no two jobs request the same amount.
"one_end" is a `Planner`'s round after an end on 10,000 full workers, while 100,000 jobs of 600 kinds are pending.
"ledger" is what `iris usage` costs while 20,000 tasks of 500 jobs run, and 200 a second start and end.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable

from iris.core.ledger.ledger import Ledger
from iris.core.rules.reduce import reduce
from iris.core.state.view import ClusterView
from iris.domain.events import Assigned, AttemptObserved, Event, JobSubmitted, WorkerConnected
from iris.domain.ids import AttemptId, JobId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.states import PriorityBand, TaskState
from iris.sched.plan import Planner, plan_round
from iris.sched.reserve import RESERVE_AFTER_MS

GB = 1 << 30
NOW_MS = 1_000_000
HOSTS_PER_SLICE = 8
COMMAND = CommandEntrypoint(("true",))


class Cluster:
    """A view with workers. Each group of 8 shares a `pool`."""

    def __init__(self, workers: int, device: Device | None = None) -> None:
        self.view = ClusterView()
        for number in range(workers):
            attributes = {"pool": f"p{number // HOSTS_PER_SLICE}", "tpu-worker-id": str(number % HOSTS_PER_SLICE)}
            attributes["zone"] = f"z{number % 4}"
            capacity = Resources(64_000, 256 * GB, 1000 * GB, device)
            self.do(WorkerConnected(WorkerId(f"w{number}"), "i", capacity, attributes))

    def do(self, event: Event) -> None:
        self.view.apply(reduce(self.view, event, NOW_MS).changes)

    def submit(self, name: str, need: Resources, replicas: int = 1, group_by: str = "", **fields: PriorityBand) -> None:
        spec = JobSpec(JobId(name), COMMAND, need, replicas=replicas, coscheduling_group_by=group_by, **fields)
        self.do(JobSubmitted(spec))


def one_job() -> ClusterView:
    cluster = Cluster(1_000)
    cluster.submit("/u/job", Resources(1000, GB), replicas=5_000)
    return cluster.view


def jobs(count: int, need: Callable[[int], Resources], workers: int = 1_000, users: int = 1) -> ClusterView:
    cluster = Cluster(workers)
    for number in range(count):
        cluster.submit(f"/u{number % users}/job-{number}", need(number))
    return cluster.view


def gangs() -> ClusterView:
    cluster = Cluster(1_000, Device("tpu", "v5p-64", 4))
    for number in range(625):
        cluster.submit(f"/u/gang-{number}", Resources(1000, GB, 0, Device("tpu", "v5p-64", 4)), 8, "pool")
    return cluster.view


def preempting() -> ClusterView:
    """Return a cluster full of batch work, with 5,000 pending jobs of a higher band."""
    cluster = Cluster(1_000)
    cluster.submit("/low/fill", Resources(64_000, GB), replicas=1_000, band=PriorityBand.BATCH)
    for task, worker in plan_round(cluster.view, NOW_MS).assignments:
        cluster.do(Assigned(task, worker))
    for number in range(5_000):
        cluster.submit(f"/high/job-{number}", Resources(32_000, GB), band=PriorityBand.PRODUCTION)
    return cluster.view


SHAPES: dict[str, tuple[Callable[[], ClusterView], float]] = {
    "one_job_of_5000": (one_job, 20),
    "jobs_5000": (lambda: jobs(5_000, lambda _: Resources(1000, GB)), 100),
    "jobs_5000_distinct": (lambda: jobs(5_000, lambda n: Resources(1000 + n, GB + n * 1000)), 100),
    "jobs_5000_of_50_users": (lambda: jobs(5_000, lambda _: Resources(1000, GB), users=50), 100),
    "gangs_625_of_8": (gangs, 100),
    "fit_nowhere_5000": (lambda: jobs(5_000, lambda _: Resources(65_000, GB)), 50),
    "fit_nowhere_5000_distinct": (lambda: jobs(5_000, lambda n: Resources(65_000 + n, GB + n)), 100),
    "preempting_5000": (preempting, 200),
    "workers_10000_jobs_100000": (lambda: jobs(100_000, lambda _: Resources(1000, GB), workers=10_000), 1000),
    "workers_10000_jobs_100000_half_fit": (
        lambda: jobs(100_000, lambda n: Resources(16_000 if n % 2 else 65_000, GB), workers=10_000, users=20),
        1000,
    ),
}


def measure(build: Callable[[], ClusterView], repeats: int) -> tuple[float, int]:
    view = build()
    times = []
    placed = 0
    for _ in range(repeats):
        gc.collect()
        begin = time.perf_counter()
        plan = plan_round(view, NOW_MS + 1000)
        times.append((time.perf_counter() - begin) * 1e3)
        placed = len(plan.assignments)
    return statistics.median(times), placed


def one_end(repeats: int, waited_ms: int) -> tuple[float, int]:
    """Return the median milliseconds of a round after each end, and the number of placed tasks."""
    cluster = Cluster(10_000)
    cluster.submit("/low/fill", Resources(8000, 8 * GB), replicas=80_000)
    for task, worker in plan_round(cluster.view, NOW_MS).assignments:
        cluster.do(Assigned(task, worker))
    for number in range(100_000):
        need = Resources(8000 + 1000 * (number // 20 % 10), (8 + number // 20 % 3) * GB)
        cluster.submit(f"/u{number % 20}/job-{number}", need)
    planner, times, placed = Planner(), [], 0
    for number in range(4 * repeats):
        booking = next(iter(cluster.view.bookings.values()))
        cluster.do(AttemptObserved(booking.attempt_id, booking.worker_id, TaskState.SUCCEEDED))
        gc.collect()
        begin = time.perf_counter()
        plan = planner.plan_round(cluster.view, NOW_MS + waited_ms + number)
        times.append((time.perf_counter() - begin) * 1e3)
        placed = len(plan.assignments)
        for event in plan.events():
            cluster.do(event)
    return statistics.median(times[1:]), placed


def ledger(minutes: int) -> dict[str, float]:
    """Return the share of a core that the ledger takes, and the rows that it writes."""
    cluster = Cluster(1_000, Device("gpu", "H100", 8))
    view, now_ms, noting, written = cluster.view, NOW_MS, 0.0, 0
    for number in range(500):
        cluster.submit(f"/u{number % 20}/job-{number}", Resources(1000, GB), replicas=40)
    assigned = [Assigned(task, worker) for task, worker in plan_round(view, NOW_MS).assignments]
    assigned.sort(key=lambda event: hash(event.task_id) % 1000)
    kept = Ledger(view, now_ms)

    def do(event: Event) -> None:
        nonlocal noting
        changes = reduce(view, event, now_ms).changes
        view.apply(changes)
        begin = time.thread_time()
        kept.note(changes, now_ms)
        noting += time.thread_time() - begin

    def observe(event: Assigned, state: TaskState) -> None:
        do(AttemptObserved(AttemptId(f"{event.task_id}:0"), event.worker_id, state, at_ms=now_ms))

    for event in assigned:
        do(event)
        observe(event, TaskState.RUNNING)
    started, noting, saving, ends = noting, 0.0, 0.0, iter(assigned)
    for _ in range(minutes):
        for _ in range(60 * 100):
            now_ms += 10
            if (event := next(ends, None)) is not None:
                observe(event, TaskState.SUCCEEDED)
        begin = time.thread_time()
        for _ in kept.settle(now_ms):
            pass
        written += len(kept.changed(now_ms))
        saving += time.thread_time() - begin
    each = (started + noting) / (3 * len(assigned))
    share = 3 * 200 * each + saving / (60 * minutes)
    return {
        "us_a_change": round(each * 1e6, 1),
        "ms_a_minute": round(saving / minutes * 1e3, 1),
        "rows_a_minute": written / minutes,
        "core_percent": round(share * 100, 2),
    }


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    result = {}
    for name, (build, bound) in SHAPES.items():
        ms, placed = measure(build, repeats)
        result[name] = {"ms": round(ms, 2), "bound_ms": bound, "placed": placed}
    for name, waited_ms in (("one_end_100000", 1000), ("one_end_100000_waiting_long", 2 * RESERVE_AFTER_MS)):
        ms, placed = one_end(repeats, waited_ms)
        result[name] = {"ms": round(ms, 2), "bound_ms": 10, "placed": placed}
    print(
        json.dumps(
            {
                "benchmark": "scheduler",
                "holds": all(r["ms"] <= r["bound_ms"] for r in result.values()),
                **result,
                "ledger": ledger(3),
            }
        )
    )


if __name__ == "__main__":
    main()
