"""No-op jobs and small actor calls through fray, on every backend, compared with plain Ray in the same run.

usage: uv run --group dev python benchmarks/fray_jobs.py [jobs N] [calls N] [--backends NAME,NAME...] [--cpu N]
           [--ray-cpus N] [--repeats N]

    jobs       N callables that do nothing, submitted one by one by one client, then waited for: jobs/s
    calls      one actor method with 1 KB of argument: p50 in ms of N calls one after the other, and calls/s of 10 N
               with 64 in flight
    --backends local,iris,ray,plain-ray (which is the default), local-process; plain-ray is Ray without fray
    --cpu      what each job, task and actor takes, besides 64 MiB: 1 CPU, which is the default of fray and of Ray
    --ray-cpus CPUs of the Ray cluster: as many as the machine has, which is the default of Ray; more make as many more
               worker processes share the machine's

    --repeats  turns of each backend (5)

Figures are medians of the turns. Backends take turns within a round, so that other load on the machine affects all of
them. Each turn begins with an uncounted tenth of the work: processes that were idle are slow at first, and Ray ends
some of them. Prints one JSON line per measurement; `ratio` is relative to plain Ray, if measured.
"""

import argparse
import collections
import contextlib
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fray import Entrypoint, EnvironmentConfig, JobRequest, ResourceConfig, wait_all
from fray.testing import load_harness
from fray.testing.ray_harness import RayHarness

IN_FLIGHT = 64
RAM_MIB = 64
KILOBYTE = b"x" * 1024

Round = Callable[[int], dict[str, float]]


def noop() -> None:
    """Do nothing: the function of every job."""


class Echo:
    """The actor of the calls."""

    def echo(self, data: bytes) -> bytes:
        """Return the argument."""
        return data


class FrayBackend:
    """A backend of fray, started by its harness."""

    def __init__(self, name: str, directory: Path, resources: ResourceConfig, ray_cpus: int) -> None:
        self._harness = RayHarness(ray_cpus, client_server=False) if name == "ray" else load_harness(name)
        self._resources = resources
        self._harness.start(directory)
        self._client = self._harness.make_client()
        workspace = directory / "workspace"
        workspace.mkdir(exist_ok=True)
        self._environment = EnvironmentConfig(workspace=str(workspace))
        self._rounds = 0

    def jobs(self, count: int) -> dict[str, float]:
        """Submit and wait for `count` jobs."""
        self._rounds += 1
        entrypoint = Entrypoint.from_callable(noop)
        begin = time.perf_counter()
        handles = [
            self._client.submit(JobRequest(f"noop-{self._rounds}-{i}", entrypoint, self._resources, self._environment))
            for i in range(count)
        ]
        submitted = time.perf_counter()
        wait_all(handles, timeout=600)
        end = time.perf_counter()
        return {"per_s": count / (end - begin), "submit_per_s": count / (submitted - begin), "seconds": end - begin}

    def calls(self, count: int) -> dict[str, float]:
        """Time calls of a new actor."""
        self._rounds += 1
        group = self._client.create_actor_group(Echo, name=f"echo-{self._rounds}", count=1, resources=self._resources)
        (actor,) = group.wait_ready()
        try:
            return time_calls(count, actor.echo, lambda: actor.echo.remote(KILOBYTE), lambda future: future.result())
        finally:
            group.shutdown()

    def close(self) -> None:
        """Stop the backend."""
        self._client.shutdown(wait=False)
        self._harness.stop()


class PlainRay:
    """Ray without fray, on the cluster of the Ray backend's harness."""

    def __init__(self, cpu: float) -> None:
        import ray

        self._ray = ray
        self._task = ray.remote(noop)
        self._options = {"num_cpus": cpu, "memory": RAM_MIB << 20}
        self._actor_class = ray.remote(Echo)

    def jobs(self, count: int) -> dict[str, float]:
        """Run and await `count` Ray tasks."""
        begin = time.perf_counter()
        references = [self._task.options(**self._options).remote() for _ in range(count)]
        submitted = time.perf_counter()
        self._ray.get(references, timeout=600)
        end = time.perf_counter()
        return {"per_s": count / (end - begin), "submit_per_s": count / (submitted - begin), "seconds": end - begin}

    def calls(self, count: int) -> dict[str, float]:
        """Time calls of a Ray actor."""
        actor = self._actor_class.options(**self._options).remote()
        get = self._ray.get

        def start() -> Any:
            return actor.echo.remote(KILOBYTE)

        get(start())
        try:
            return time_calls(
                count,
                lambda data: get(actor.echo.remote(data)),
                lambda: actor.echo.remote(KILOBYTE),
                lambda ref: get(ref),
            )
        finally:
            self._ray.kill(actor)

    def close(self) -> None:
        """Do nothing: the Ray backend stops the cluster."""


def time_calls(
    count: int, call: Callable[[bytes], Any], start: Callable[[], Any], finish: Callable[[Any], Any]
) -> dict[str, float]:
    """Time calls one by one, then with IN_FLIGHT concurrent calls."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call(KILOBYTE)
        times.append(time.perf_counter() - begin)
    under_way: collections.deque[Any] = collections.deque()
    begin = time.perf_counter()
    for _ in range(10 * count):
        if len(under_way) == IN_FLIGHT:
            finish(under_way.popleft())
        under_way.append(start())
    while under_way:
        finish(under_way.popleft())
    elapsed = time.perf_counter() - begin
    return {
        "p50_ms": 1e3 * statistics.median(times),
        "p99_ms": 1e3 * statistics.quantiles(times, n=100)[98],
        "in_flight_per_s": 10 * count / elapsed,
    }


@contextlib.contextmanager
def backends(names: list[str], scratch: Path, cpu: float, ray_cpus: int) -> Iterator[dict[str, Any]]:
    """Start the backends, plain Ray after Ray."""
    resources = ResourceConfig.with_cpu(cpu=cpu, ram=f"{RAM_MIB}m", disk="1m")
    started: dict[str, Any] = {}
    try:
        for name in sorted(names, key=lambda name: name == "plain-ray"):
            (scratch / name).mkdir()
            started[name] = (
                PlainRay(cpu) if name == "plain-ray" else FrayBackend(name, scratch / name, resources, ray_cpus)
            )
        yield started
    finally:
        for backend in reversed(started.values()):
            backend.close()


def measure(mode: str, count: int, repeats: int, started: dict[str, Any]) -> None:
    """Run the rounds of one mode and print a line for each backend."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in started}
    for _ in range(repeats):
        for name, backend in started.items():
            turn: Round = getattr(backend, mode)
            turn(max(1, count // 10))
            rounds[name].append(turn(count))
    medians = {
        name: {key: statistics.median(each[key] for each in figures) for key in figures[0]}
        for name, figures in rounds.items()
    }
    key = "seconds" if mode == "jobs" else "p50_ms"
    for name, figures in medians.items():
        line: dict[str, Any] = {"bench": f"fray-{mode}", "backend": name, "n": count}
        line.update({key: round(value, 3) for key, value in figures.items()})
        if "plain-ray" in medians:
            line["ratio"] = round(figures[key] / medians["plain-ray"][key], 2)
        print(json.dumps(line), flush=True)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", default=["jobs", "1000", "calls", "500"], metavar="MODE N")
    parser.add_argument("--backends", default="local,iris,ray,plain-ray")
    parser.add_argument("--cpu", type=float, default=1)
    parser.add_argument("--ray-cpus", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    names = [name for name in options.backends.split(",") if name]
    if "plain-ray" in names and "ray" not in names:
        sys.exit("plain-ray runs on the cluster of ray: name both")
    logging.basicConfig(level=logging.ERROR)
    with (
        tempfile.TemporaryDirectory(prefix="fb") as scratch,
        backends(names, Path(scratch), options.cpu, options.ray_cpus) as started,
    ):
        for mode, count in zip(options.words[::2], options.words[1::2], strict=True):
            measure(mode, int(count), options.repeats, started)


if __name__ == "__main__":
    main()
