"""`map_files` on Ray beside plain Ray tasks, one a file, over the same many small files.

usage: uv run python tests/benchmarks/map_files.py [--files N] [--bytes N] [--work-ms F] [--cpus N] [--repeats N]
           [--memory N]

    --files    how many (2,000)
    --bytes    of each (4,096)
    --work-ms  processor time that each takes besides being read and written (0)
    --cpus     of the Ray cluster, and workers of map_files (2)
    --repeats  turns of each, after one that is not counted (5)
    --memory   instead: what this process grows by while N files go through the local backend

The plain side is the loop of the documents: a task a file, that looks for its output, reads, and writes it. Turns
alternate. Prints a JSON line for each side, with medians, and for both the ratio of the medians and the median of the
ratios of turns that followed each other.
"""

import argparse
import json
import logging
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fray import ResourceConfig, set_current_client
from fray.backends.local import LocalClient
from fray.testing.ray_harness import RayHarness
from marin.run import map_files

SMALL = ResourceConfig.with_cpu(cpu=1, ram="64m")


def make(source: str, output: str, work_seconds: float) -> None:
    """Read, work, write."""
    with open(source, "rb") as file:
        data = file.read()
    end = time.thread_time() + work_seconds
    while time.thread_time() < end:
        pass
    with open(output, "wb") as file:
        file.write(data.upper())


def plain_ray(inputs: list[str], outputs: list[str], work_seconds: float) -> None:
    """The documents' loop."""
    import ray

    @ray.remote
    def task(source: str, output: str) -> bool:
        if not os.path.exists(output):
            make(source, output, work_seconds)
        return True

    refs = [task.remote(source, output) for source, output in zip(inputs, outputs, strict=True)]
    assert all(ray.get(refs))


def mapped(inputs: list[str], outputs: list[str], work_seconds: float, workers: int) -> None:
    """The same by map_files."""

    def fn(source: str, path: str) -> None:
        make(source, path, work_seconds)

    result = map_files(fn, inputs, outputs, max_workers=workers, resources=SMALL)
    assert result.succeeded == len(inputs), result


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Take turns."""
    (directory / "in").mkdir()
    names = [f"{number:06}.txt" for number in range(options.files)]
    for name in names:
        (directory / "in" / name).write_bytes(b"abcdefg " * (options.bytes // 8))
    inputs = [str(directory / "in" / name) for name in names]
    work = options.work_ms / 1000
    sides: dict[str, Callable[[list[str]], None]] = {
        "plain-ray": lambda outputs: plain_ray(inputs, outputs, work),
        "map-files": lambda outputs: mapped(inputs, outputs, work, options.cpus),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(options.repeats + 1):
        for side, run in sides.items():
            place = directory / f"{side}-{turn}"
            place.mkdir()
            began = time.perf_counter()
            run([str(place / name) for name in names])
            seconds[side].append(time.perf_counter() - began)
    for side, turns in seconds.items():
        median = statistics.median(turns[1:])
        report(side=side, first=turns[0], median=median, files_per_s=options.files / median)
    pairs = list(zip(seconds["map-files"][1:], seconds["plain-ray"][1:], strict=True))
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    report(ratio=medians[0] / medians[1], median_ratio=statistics.median(ours / plain for ours, plain in pairs))


def memory(count: int, directory: Path) -> None:
    """Send `count` files of no content through the local backend, and tell how the process grew on the way."""
    grown: list[float] = []

    def names() -> Iterator[str]:
        for number in range(count):
            if number % (count // 10) == count // 10 - 1:
                grown.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            yield str(number)

    def touch(_: str, path: str) -> None:
        with open(path, "wb"):
            pass

    began = time.perf_counter()
    with LocalClient() as client, set_current_client(client):
        outputs = lambda name: directory / name[-2:] / name  # noqa: E731
        result = map_files(touch, names(), outputs, manifest=str(directory / "manifest.jsonl"), max_workers=4)
    assert result.succeeded == count, result
    report(files=count, seconds=time.perf_counter() - began, peak_mb_at_each_tenth=grown)


def report(**figures: Any) -> None:
    """Print a line."""
    rounded = {
        key: round(value, 3) if isinstance(value, float)
        else [round(each, 1) for each in value] if isinstance(value, list)
        else value
        for key, value in figures.items()
    }  # fmt: skip
    print(json.dumps(rounded), flush=True)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--work-ms", type=float, default=0.0)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="map-files-") as scratch:
        directory = Path(scratch)
        if options.memory:
            memory(options.memory, directory)
            return
        harness = RayHarness(options.cpus)
        harness.prepare()
        harness.start(directory)
        client = harness.make_client()
        try:
            with set_current_client(client):
                compare(options, directory)
        finally:
            client.shutdown(wait=False)
            harness.stop()


if __name__ == "__main__":
    main()
