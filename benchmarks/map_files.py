"""`map_files` on Ray compared with plain Ray tasks, one per file, over many small files.

usage: uv run --group dev python benchmarks/map_files.py [--files N] [--bytes N] [--work-ms F] [--cpus N] [--repeats N]
           [--fresh N] [--memory N]

    --files    how many (2,000)
    --bytes    of each (4,096)
    --work-ms  processor time that each takes besides being read and written (0)
    --cpus     of the Ray cluster, and workers of map_files (2)
    --repeats  turns of each, after one that is not counted (5)
    --fresh    instead: N turns of each side, each on a fresh cluster of its own, its first connection included; besides
               seconds, processor time of the cluster and this process from there to the end
    --memory   instead: what this process grows by while N files go through the local backend

The plain side is the loop of the documents: a task per file, which checks for its output, reads, and writes. Turns
alternate. Prints a JSON line for each side with medians, the ratio of the medians, and the median ratio of successive
turns.
"""

import argparse
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from processor_time import descendants_ms

from fray import ResourceConfig, set_current_client
from fray.backends.local import LocalClient
from fray.testing.ray_harness import RayHarness
from marin.run import MapFilesResult, map_files

SMALL = ResourceConfig.with_cpu(cpu=1, ram="64m")


def make(source: str, output: str, work_seconds: float) -> None:
    """Read a file, work, and write the output."""
    with open(source, "rb") as file:
        data = file.read()
    end = time.thread_time() + work_seconds
    while time.thread_time() < end:
        pass
    with open(output, "wb") as file:
        file.write(data.upper())


def plain_ray(inputs: list[str], outputs: list[str], work_seconds: float) -> None:
    """Run the loop of the documents."""
    import ray

    @ray.remote
    def task(source: str, output: str) -> bool:
        if not os.path.exists(output):
            make(source, output, work_seconds)
        return True

    refs = [task.remote(source, output) for source, output in zip(inputs, outputs, strict=True)]
    assert all(ray.get(refs))


def mapped(inputs: list[str], outputs: list[str], work_seconds: float, workers: int) -> None:
    """Process the same files with map_files."""

    def fn(source: str, path: str) -> None:
        make(source, path, work_seconds)

    result = map_files(fn, inputs, outputs, max_workers=workers, resources=SMALL)
    assert result.succeeded == len(inputs), result


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Compare both sides in alternating turns."""
    inputs = write_inputs(options, directory)
    names = [os.path.basename(source) for source in inputs]
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


def compare_fresh(options: argparse.Namespace) -> None:
    """Compare both sides in alternating turns, each in a separate process with a fresh cluster."""
    turns: dict[str, list[dict[str, float]]] = {"plain-ray": [], "map-files": []}
    words = [f"--files={options.files}", f"--bytes={options.bytes}", f"--work-ms={options.work_ms}"]
    for _ in range(options.fresh):
        for side, figures in turns.items():
            command = [sys.executable, __file__, *words, f"--cpus={options.cpus}", f"--side={side}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures.append(json.loads(done.stdout))
    for side, figures in turns.items():
        report(side=side, **{key: statistics.median(turn[key] for turn in figures) for key in figures[0]})
    for key in ("seconds", "processor_s"):
        pairs = zip(turns["map-files"], turns["plain-ray"], strict=True)
        report(figure=key, median_ratio=statistics.median(ours[key] / plain[key] for ours, plain in pairs))


def one_fresh(options: argparse.Namespace, directory: Path) -> None:
    """Measure one side on a fresh cluster."""
    inputs = write_inputs(options, directory)
    (directory / "out").mkdir()
    outputs = [str(directory / "out" / os.path.basename(source)) for source in inputs]
    harness = RayHarness(options.cpus, client_server=False)
    harness.prepare()
    harness.start(directory)
    # What a new node does by itself.
    time.sleep(3)
    began, spent = time.perf_counter(), descendants_ms()
    if options.side == "plain-ray":
        import ray

        ray.init(logging_level=logging.WARNING, log_to_driver=False)
        plain_ray(inputs, outputs, options.work_ms / 1000)
    else:
        with set_current_client(harness.make_client()):
            mapped(inputs, outputs, options.work_ms / 1000, options.cpus)
    report(seconds=time.perf_counter() - began, processor_s=(descendants_ms() - spent) / 1000)
    harness.stop()


def write_inputs(options: argparse.Namespace, directory: Path) -> list[str]:
    """Write the input files and return their paths."""
    (directory / "in").mkdir()
    inputs = [directory / "in" / f"{number:06}.txt" for number in range(options.files)]
    for path in inputs:
        path.write_bytes(b"abcdefg " * (options.bytes // 8))
    return list(map(str, inputs))


def memory(count: int, directory: Path) -> None:
    """Process `count` empty files on the local backend, and return the growth of the process."""
    grown: list[float] = []
    finished = most_ahead = 0

    def note(result: MapFilesResult) -> None:
        nonlocal finished
        finished = result.finished

    def names() -> Iterator[str]:
        nonlocal most_ahead
        for number in range(count):
            most_ahead = max(most_ahead, number - finished)
            if number % (count // 10) == count // 10 - 1:
                # Not ru_maxrss, which begins with the peak of whoever started this process.
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                grown.append(pages * resource.getpagesize() / (1 << 20))
            yield str(number)

    def touch(_: str, path: str) -> None:
        with open(path, "wb"):
            pass

    began = time.perf_counter()
    with LocalClient() as client, set_current_client(client):
        outputs = lambda name: directory / name[-2:] / name  # noqa: E731
        manifest = directory / "manifest.jsonl"
        result = map_files(touch, names(), outputs, manifest=manifest, max_workers=4, on_progress=note)
    assert result.succeeded == count, result
    seconds = time.perf_counter() - began
    report(files=count, seconds=seconds, most_ahead=most_ahead, resident_mb_at_each_tenth=grown)


def report(**figures: Any) -> None:
    """Print a result as a JSON line."""
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
    parser.add_argument("--fresh", type=int, default=0)
    parser.add_argument("--side", choices=["plain-ray", "map-files"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="map-files-") as scratch:
        directory = Path(scratch)
        if options.memory:
            memory(options.memory, directory)
            return
        if options.fresh:
            compare_fresh(options)
            return
        if options.side:
            one_fresh(options, directory)
            return
        harness = RayHarness(options.cpus, client_server=False)
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
