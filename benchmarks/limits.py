"""The cost of enforcing tasks' limits, compared with no limits, in alternating turns of one run.

usage: uv run --group dev python benchmarks/limits.py [--starts 200] [--burst 1000] [--sleepers 100] [--seconds 20]
       [--turns 3]

A worker process with its guardian for each mode, and a small controller: `/bin/true` one by one (from the order to the
reported end), many at once, and the processor time of worker and guardian while tasks sleep, including usage sampling.
Prints one JSON line per mode with medians of the turns, and the time of creating, entering, limiting, reading and
leaving a control group.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from iris.domain.states import TaskState
from iris.rpc.generated import iris_pb2 as pb
from iris.worker.limits.plan import LimitRequest, LimitsMode
from iris.worker.limits.probe import close_limits, open_limits
from support.iris.worker_fixtures import FakeController, run_command

MAIN = """
import sys
from pathlib import Path
from iris.domain.resources import Resources
from iris.rpc.controller_address import ControllerAddress
from iris.worker.app import WorkerConfig, run_worker
from iris.worker.limits.plan import LimitsMode
address = ControllerAddress(f"127.0.0.1:{sys.argv[2]}", "w:test:token")
size = Resources(10**7, 1 << 40, 1 << 40)
sys.exit(run_worker(WorkerConfig(Path(sys.argv[1]), "w1", size, limits=LimitsMode(sys.argv[3])), lambda: address))
"""
LIMITS = pb.Resources(cpu_millis=1000, memory_bytes=1 << 30, disk_bytes=1 << 30)
WAYS = {
    "off": (LimitsMode.OFF, ""),
    "nothing said": (LimitsMode.AUTO, ""),
    "memory": (LimitsMode.AUTO, "memory"),
    "memory, disk": (LimitsMode.AUTO, "memory,disk"),
    "soft memory": (LimitsMode.SOFT, "memory"),
}
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Found:
    """Figures of one mode, one for each turn."""

    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    tasks_per_s: list[float] = field(default_factory=list)
    asleep_cpu_percent: list[float] = field(default_factory=list)
    worker_rss_mb: list[float] = field(default_factory=list)
    guardian_rss_mb: list[float] = field(default_factory=list)


def cpu_s(pid: int) -> float:
    """Return the processor time of one process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:13])) / TICKS


def rss_mb(pid: int) -> float:
    """Return the current memory of one process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


class Bench:
    """One worker process and its orders."""

    def __init__(self, controller: FakeController, enforced: str) -> None:
        self.controller = controller
        self.enforced = enforced
        self.jobs = 0

    def send(self, count: int, *argv: str) -> list[str]:
        """Start a job of `count` tasks, and return their attempts."""
        self.jobs += 1
        job = f"/ann/job{self.jobs}"
        asked = run_command(*argv, job_id=job, indexes=range(count), resources=LIMITS, enforced=self.enforced)
        self.controller.send(run=[asked])
        return [f"{job}/{index}:0" for index in range(count)]

    async def run(self, count: int, *argv: str) -> float:
        """Run `count` tasks at once, and return the seconds until the last end is reported."""
        began = time.perf_counter()
        names = self.send(count, *argv)
        for end in await self.controller.until_ended(*names, timeout_s=120):
            assert end.state == TaskState.SUCCEEDED, end
        took = time.perf_counter() - began
        self.controller.send(forget=names)
        return took


async def turn(way: str, found: Found, options: argparse.Namespace) -> None:
    """Measure one mode once."""
    mode, enforced = WAYS[way]
    controller = FakeController()
    controller.heartbeat_ms = 5000
    await controller.start()
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as name:
        command = [sys.executable, "-c", MAIN, f"{name}/work", str(controller.port), mode]
        process = await asyncio.to_thread(subprocess.Popen, command, stderr=subprocess.DEVNULL)
        try:
            await controller.until(lambda: controller.hellos)
            guardian = int(await asyncio.to_thread(Path(name, "work", "guardian.lock").read_text))
            bench = Bench(controller, enforced)
            for _ in range(20):
                await bench.run(1, "/bin/true")
            times = sorted([await bench.run(1, "/bin/true") for _ in range(options.starts)])
            found.p50_ms.append(times[len(times) // 2] * 1000)
            found.p99_ms.append(times[int(len(times) * 0.99)] * 1000)
            found.tasks_per_s.append(options.burst / await bench.run(options.burst, "/bin/true"))
            names = bench.send(options.sleepers, "/bin/sleep", "1000")
            await controller.until(lambda: all(TaskState.RUNNING in controller.states.get(n, ()) for n in names), 60)
            await asyncio.sleep(2)
            before = cpu_s(guardian) + cpu_s(process.pid)
            await asyncio.sleep(options.seconds)
            used = cpu_s(guardian) + cpu_s(process.pid) - before
            found.asleep_cpu_percent.append(100 * used / options.seconds)
            found.worker_rss_mb.append(rss_mb(process.pid))
            found.guardian_rss_mb.append(rss_mb(guardian))
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 60)
            await controller.stop()


def groups_alone(count: int = 500) -> dict[str, float]:
    """Return the microseconds for the control groups of one attempt, without its start."""
    with tempfile.TemporaryDirectory() as name:
        ability = open_limits(Path(name), LimitsMode.AUTO)
        groups = ability.groups
        if groups is None:
            return {}
        limits = LimitRequest(memory_bytes=1 << 30, processes=1000, cpu_millis=1000)
        times = []
        for _ in range(count):
            began = time.perf_counter()
            group = groups.take(limits)
            with groups.inside(group):
                pass
            groups.hold(group)
            groups.end(group)
            times.append((time.perf_counter() - began) * 1e6)
        close_limits(Path(name), ability)
        times.sort()
        return {"groups_p50_us": round(times[count // 2]), "groups_p99_us": round(times[int(count * 0.99)])}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--burst", type=int, default=1000)
    parser.add_argument("--sleepers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps(groups_alone()), flush=True)
    found = {way: Found() for way in WAYS}
    for _ in range(options.turns):
        for way, figures in found.items():
            asyncio.run(turn(way, figures, options))
    for way, figures in found.items():
        medians = {name: round(statistics.median(values), 2) for name, values in vars(figures).items()}
        print(json.dumps({"limits": way, **medians}), flush=True)


if __name__ == "__main__":
    main()
