"""Latency of `/bin/true` on a worker with a task that takes all resources it can get, compared with an idle worker.

usage: uv run --group dev python benchmarks/hostile_neighbour.py [--starts 100] [--turns 3] [--at-most 2.0]

One worker process with its guardian, default limits, and a small controller. For each hostile task in alternating
turns: `/bin/true` one by one (from the order to the reported end) on the idle worker, then beside the hostile task,
which restarts whenever its limit has ended it. Prints a JSON line per hostile task: medians, their ratio, its number of
runs, and the machine's load, which affects the figures. Exits with 1 if a neighbour's median is more than `--at-most`
times that of the worker alone.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from iris.domain.states import TaskState
from iris.rpc.generated import iris_pb2 as pb
from support.iris.worker_fixtures import FakeController, run_command

MAIN: Final = """
import sys
from pathlib import Path
from iris.domain.resources import Resources
from iris.rpc.controller_address import ControllerAddress
from iris.worker.app import WorkerConfig, run_worker
address = ControllerAddress(f"127.0.0.1:{sys.argv[2]}", "w:test:token")
size = Resources(10**7, 1 << 40, 1 << 40)
sys.exit(run_worker(WorkerConfig(Path(sys.argv[1]), "w1", size, max_processes=200), lambda: address))
"""
MIB: Final = 1 << 20
BOMB: Final = """
import os, time
for _ in range(400):
    try:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
    except OSError:
        time.sleep(0.001)
"""
HOG: Final = "held = []\nwhile True: held.append(bytearray(b'x') * (8 << 20))"
FILLER: Final = """
import os
piece = os.urandom(1 << 20)
with open("large", "wb") as file:
    for _ in range(400):
        file.write(piece)
        file.flush()
"""
LINE: Final = "import os\npiece = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, piece)"


@dataclass(frozen=True)
class Hostile:
    """A task that takes all resources it can get, and its limits."""

    code: str
    enforced: str = "memory,disk"
    memory_bytes: int = 64 * MIB
    disk_bytes: int = 64 * MIB


HOSTILE: Final = {
    "fork bomb": Hostile(BOMB),
    "memory hog": Hostile(HOG),
    "disk filler": Hostile(FILLER),
    "1 GB line": Hostile(LINE),
}


@dataclass
class Found:
    """Milliseconds of each start."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    runs: int = 0


class Bench:
    """One worker process and its orders."""

    def __init__(self, controller: FakeController) -> None:
        self._controller = controller
        self._jobs = 0

    def start(self, *argv: str, resources: pb.Resources, enforced: str) -> str:
        """Start a task and return its attempt."""
        self._jobs += 1
        job = f"/ann/job{self._jobs}"
        self._controller.send(run=[run_command(*argv, job_id=job, resources=resources, enforced=enforced)])
        return f"{job}/0:0"

    async def end(self, attempt: str) -> pb.Observation:
        (found,) = await self._controller.until_ended(attempt, timeout_s=300)
        self._controller.send(forget=[attempt])
        return found

    async def took_ms(self) -> float:
        """Return the milliseconds of one `/bin/true`, which has limits, too."""
        began = time.perf_counter()
        resources = pb.Resources(cpu_millis=1000, memory_bytes=1 << 30)
        end = await self.end(self.start("/bin/true", resources=resources, enforced="memory"))
        assert end.state == TaskState.SUCCEEDED, end
        return (time.perf_counter() - began) * 1000

    @contextlib.asynccontextmanager
    async def plagued(self, hostile: Hostile, found: Found) -> AsyncIterator[None]:
        """Context manager: run a hostile task repeatedly."""
        resources = pb.Resources(cpu_millis=1000, memory_bytes=hostile.memory_bytes, disk_bytes=hostile.disk_bytes)
        running: list[str] = []

        async def again() -> None:
            while True:
                argv = (sys.executable, "-c", hostile.code)
                running[:] = [self.start(*argv, resources=resources, enforced=hostile.enforced)]
                found.runs += 1
                await self.end(running[0])

        plague = asyncio.create_task(again())
        try:
            await asyncio.sleep(1.0)
            yield
        finally:
            plague.cancel()
            await asyncio.wait([plague])
            self._controller.send(stop=[pb.StopAttempt(attempt_id=running[0], grace_ms=0, reason="enough")])
            await self._controller.until_ended(running[0], timeout_s=60)


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[Bench]:
    """Context manager: yield a warm worker and its controller."""
    controller = FakeController()
    controller.heartbeat_ms = 5000
    await controller.start()
    with tempfile.TemporaryDirectory(prefix="iris-bench-", ignore_cleanup_errors=True) as name:
        command = [sys.executable, "-c", MAIN, f"{name}/work", str(controller.port)]
        process = await asyncio.to_thread(subprocess.Popen, command, stderr=subprocess.DEVNULL)
        try:
            await controller.until(lambda: controller.hellos)
            limits = await asyncio.to_thread(Path(name, "work", "guardian.log").read_text)
            for line in limits.splitlines():
                if "limited softly" in line:
                    print(json.dumps({"limits": line}), flush=True)
            bench = Bench(controller)
            for _ in range(20):
                await bench.took_ms()
            yield bench
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 60)
            await controller.stop()


async def measure(starts: int, turns: int) -> dict[str, Found]:
    """Measure the neighbours of each hostile task."""
    found = {name: Found() for name in HOSTILE}
    async with worker() as bench:
        for _ in range(turns):
            for name, hostile in HOSTILE.items():
                found[name].alone += [await bench.took_ms() for _ in range(starts)]
                async with bench.plagued(hostile, found[name]):
                    found[name].beside += [await bench.took_ms() for _ in range(starts)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--at-most", type=float, default=2.0)
    options = parser.parse_args()
    worst = 0.0
    for name, found in asyncio.run(measure(options.starts, options.turns)).items():
        alone, beside = statistics.median(found.alone), statistics.median(found.beside)
        worst = max(worst, beside / alone)
        line = {"hostile": name, "alone_p50_ms": round(alone, 2), "beside_p50_ms": round(beside, 2)}
        line |= {"times": round(beside / alone, 2), "runs": found.runs, "load": round(os.getloadavg()[0], 1)}
        print(json.dumps(line), flush=True)
    return 0 if worst <= options.at_most else 1


if __name__ == "__main__":
    sys.exit(main())
