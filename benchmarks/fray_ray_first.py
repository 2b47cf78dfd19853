"""The first small jobs of a process on Ray through fray, compared with plain tasks: processor time and seconds.

usage: uv run --group dev python benchmarks/fray_ray_first.py [--jobs N] [--cpu N] [--turns N]

    --jobs   jobs of each round (2,000), each with an argument of its own
    --cpu    processors that each takes (0.1); small jobs have many worker processes
    --turns  fresh processes (3), each on the same cluster, which has as many processors as the machine

A process runs plain tasks, which start its worker processes, plain tasks again, then jobs of fray twice: the first time
each worker imports fray and connects. Processor time is of the driver and the cluster together, from the first
submission to the last result. Prints a JSON line per turn, then the medians as multiples of plain tasks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from processor_time import descendants_ms

from fray.testing.ray_harness import RayCluster

ROUNDS = ("start", "tasks", "fray-first", "fray-again")


def work(n: int) -> int:
    """Do the work of every job."""
    return n


def rounds(count: int, cpu: float) -> Iterator[Callable[[], object]]:
    """Connect, then yield a function for each of the ROUNDS."""
    import ray

    from fray import Entrypoint, JobRequest, ResourceConfig, wait_all
    from fray.backends.ray import RayClient

    client, small = RayClient.connect(), ResourceConfig.with_cpu(cpu=cpu, ram="64m", disk="1m")
    task = ray.remote(num_cpus=cpu, memory=64 << 20)(work)

    def by_tasks() -> None:
        ray.get([task.remote(n) for n in range(count)])

    def by_fray() -> None:
        requests = (JobRequest(f"job-{n}", Entrypoint.from_callable(work, [n]), small) for n in range(count))
        wait_all([client.submit(request) for request in requests], timeout=600)

    yield from (by_tasks, by_tasks, by_fray, by_fray)


def run_here(count: int, cpu: float) -> None:
    """Run the rounds in this process, each on command. Report when a round is ready and done."""
    for run in rounds(count, cpu):
        print("ready", flush=True)
        sys.stdin.readline()
        run()
        print("done", flush=True)
        sys.stdin.readline()


def turn(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Run one process and measure its rounds."""
    command = [sys.executable, __file__, "--here", "--jobs", str(options.jobs), "--cpu", str(options.cpu)]
    found: dict[str, dict[str, float]] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = iter(process.stdout)
        for name in ROUNDS:
            next(line for line in lines if line == "ready\n")  # Ray has its warnings there, too
            before, begin = descendants_ms(), time.perf_counter()
            print(file=process.stdin, flush=True)
            next(line for line in lines if line == "done\n")
            seconds, spent = time.perf_counter() - begin, descendants_ms() - before
            found[name] = {"processor_s": round(spent / 1e3, 2), "seconds": round(seconds, 2)}
            print(file=process.stdin, flush=True)
    return found


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--cpu", type=float, default=0.1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run_here(options.jobs, options.cpu)
        return
    turns: list[dict[str, dict[str, float]]] = []
    with RayCluster(cpus=os.cpu_count() or 1).running():
        for _ in range(options.turns):
            turns.append(turn(options))
            print(json.dumps(turns[-1]), flush=True)
    for figure in ("processor_s", "seconds"):
        medians = {name: statistics.median(each[name][figure] for each in turns) for name in ROUNDS}
        print(json.dumps({figure: {name: round(medians[name] / medians["tasks"], 2) for name in ROUNDS}}))


if __name__ == "__main__":
    main()
