"""The executor's figures, compared with doit and bare file operations in the same run.

usage: uv run --group dev python benchmarks/executor.py [NAME]... [--no-peer]

    wide       1,000 independent trivial steps, with leases, info files, event log and usage: first run and all-cached
               run, ms a step; in memory (/dev/shm, where there is one) and on disk, where making files costs what ext4
               likes
    printing   the same with steps that print a line each, which goes to the terminal and to their logs
    files      the same with steps that write a file each, in a directory of its own; doit looks for its targets
    chain      500 steps, each after the one before: ms a step
    six        a chain of 6 steps of 0.2 s: s
    sleeps     24 steps of 0.5 s at once: s
    layers     a dry run of 10 full layers of 20 and of 40 full layers of 50: s and MB
    path       compute_output_path of a config with 1,000 fields: ms
    import     import marin.execution, in a process of its own: s
    requests   requests at an object store: for a step that runs, for a cached one, for 1,000 statuses

Prints one JSON line a measurement: medians, the target, and ratios to what was measured beside it: doit (fetched by
`uv run --with doit` into an environment of its own; whole process, no locks between pipelines) or the floor, the file
operations that a step cannot do without, made one after the other by themselves. Beside doit the target is a share of
its time, and there are processor times, too (`cpu`, of all threads and children), which other work on the machine
changes less.
"""

import contextlib
import hashlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

from marin.execution import Executor, ExecutorStep, compute_output_path, output_path_of, this_output_path, versioned

REPEATS = 3
TURNS = 7  # beside doit
FOLDER = tempfile.TemporaryDirectory(prefix="marin-benchmark-")
MEMORY = Path("/dev/shm")

# Shares of doit's time.
FIRST_RUN, CACHED_RUN = 1.0, 0.35

DOIT_WIDE = """
from doit.tools import run_once
def nothing(): pass
def task_step():
    for index in range({count}):
        yield {{"name": f"s{{index}}", "actions": [(nothing,)], "uptodate": [run_once]}}
"""
DOIT_PRINTING = DOIT_WIDE.replace("pass", "print('a line')")
DOIT_FILES = """
import os
from doit.tools import run_once
def write(folder):
    os.makedirs(folder)
    with open(folder + "/data", "w") as file:
        file.write("content")
def task_step():
    for index in range({count}):
        folder = f"out/s{{index}}"
        actions, targets = [(write, [folder])], [folder + "/data"]
        yield {{"name": f"s{{index}}", "actions": actions, "targets": targets, "uptodate": [run_once]}}
"""
DOIT_CHAIN = """
from doit.tools import run_once
def nothing(): pass
def task_step():
    for index in range({count}):
        before = [f"step:s{{index - 1}}"] if index else []
        yield {{"name": f"s{{index}}", "actions": [(nothing,)], "uptodate": [run_once], "task_dep": before}}
"""

# Runs where uv has put doit, so that uv's own start is not counted.
TIME_DOIT = """
import json, os, subprocess, sys, time
def processor_time():
    used = os.times()
    return used.children_user + used.children_system
found = []
for _ in range(2):
    begin, used = time.perf_counter(), processor_time()
    subprocess.run([sys.executable, "-m", "doit", "-v0"], check=True, stdout=subprocess.DEVNULL)
    found.append([time.perf_counter() - begin, processor_time() - used])
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Config:
    number: int
    output_path: str
    inputs: Any = None


def do_nothing(_config: Config) -> None:
    """Do nothing: the function of a trivial step."""


def print_line(_config: Config) -> None:
    print("a line")


def write_data(config: Config) -> None:
    with open(f"{config.output_path}/data", "w") as file:
        file.write("content")


def sleep_fifth(_config: Config) -> None:
    time.sleep(0.2)


def sleep_half(_config: Config) -> None:
    time.sleep(0.5)


def step(name: str, number: int, fn: Callable[[Config], None] = do_nothing, inputs: Any = None) -> ExecutorStep[Config]:
    return ExecutorStep(name=name, fn=fn, config=Config(versioned(number), this_output_path(), inputs))


def wide(count: int, fn: Callable[[Config], None] = do_nothing) -> list[ExecutorStep[Config]]:
    return [step(f"wide/s{index}", index, fn) for index in range(count)]


def chain(count: int, fn: Callable[[Config], None] = do_nothing) -> list[ExecutorStep[Config]]:
    last = step("chain/s0", 0, fn)
    for index in range(1, count):
        last = step(f"chain/s{index}", index, fn, output_path_of(last))
    return [last]


def layers(depth: int, width: int) -> list[ExecutorStep[Any]]:
    layer: list[ExecutorStep[Any]] = []
    for level in range(depth):
        inputs = [output_path_of(before) for before in layer]
        layer = [ExecutorStep(f"layer{level}/s{index}", do_nothing, {"inputs": inputs}) for index in range(width)]
    return layer


def run_seconds(prefix: str, steps: list[ExecutorStep[Any]], **options: Any) -> float:
    begin = time.perf_counter()
    executor = Executor(prefix, f"{prefix}/experiments")
    executor.run(steps, **options)
    return time.perf_counter() - begin


@contextlib.contextmanager
def fresh_prefix(folder: str | None = None) -> Iterator[str]:
    # Deleted only when all is measured: ext4 without a journal is slow at making files for minutes after deleting many.
    yield tempfile.mkdtemp(prefix="prefix-", dir=folder or FOLDER.name)


def floor_seconds(count: int, folder: str | None = None) -> float:
    """Return the seconds for the bare file operations of `count` steps: directory, lock, sidecar, two statuses, info,
    artifact."""
    with fresh_prefix(folder) as prefix:
        begin = time.perf_counter()
        for index in range(count):
            directory = f"{prefix}/s{index}"
            os.mkdir(directory)
            for name, renamed in (("fence", 0), ("lock", 1), ("status", 0), ("info", 1), ("artifact", 1)):
                write_file(f"{directory}/{name}", b"x" * 300, bool(renamed))
            write_file(f"{directory}/status", b"SUCCESS", renamed=False)
            os.unlink(f"{directory}/lock")
        return time.perf_counter() - begin


def write_file(path: str, content: bytes, renamed: bool) -> None:
    target = path + ".tmp" if renamed else path
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o666)
    os.write(descriptor, content)
    os.close(descriptor)
    if renamed:
        os.rename(target, path)


@dataclass(frozen=True)
class Measured:
    """Measured seconds."""

    wall: float
    cpu: float


def measured(work: Callable[[], object]) -> Measured:
    begin, used = time.perf_counter(), time.process_time()
    work()
    return Measured(time.perf_counter() - begin, time.process_time() - used)


def doit_runs(dodo: str, count: int, tree: str | None = None) -> tuple[Measured, Measured] | None:
    """Return the times of doit's first run and all-cached run."""
    if "--no-peer" in sys.argv:
        return None
    with fresh_prefix(tree) as folder:
        Path(folder, "dodo.py").write_text(dodo.format(count=count))
        command = ["uv", "run", "--quiet", "--no-project", "--with", "doit", "python", "-c", TIME_DOIT]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=300)
    first, cached = (Measured(*found) for found in json.loads(done.stdout))
    return first, cached


def report(name: str, value: float, unit: str, target: float, **beside: float | None) -> None:
    line: dict[str, Any] = {"bench": f"executor-{name}", "value": round(value, 3), "unit": unit, "target": target}
    for peer, figure in beside.items():
        if figure is not None:
            line[peer] = round(figure, 3)
            line[f"ratio_to_{peer}"] = round(value / figure, 2)
    line["holds"] = value <= target
    print(json.dumps(line), flush=True)


def median_of(seconds: Callable[[], float]) -> float:
    return statistics.median(seconds() for _ in range(REPEATS))


def in_each_tree(bench: Callable[[str, str, int], None], count: int) -> None:
    """Run a benchmark in memory, if there is such a file system, and on disk."""
    in_memory = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and not Path(FOLDER.name).is_relative_to(MEMORY)
    if in_memory:
        with tempfile.TemporaryDirectory(prefix="marin-benchmark-", dir=MEMORY) as folder:
            bench(folder, "", count)
    bench(FOLDER.name, "-on-disk" if in_memory else "", count)


def bench_wide(count: int = 1000) -> None:
    in_each_tree(bench_wide_in, count)


def bench_chain(count: int = 500) -> None:
    in_each_tree(bench_chain_in, count)


def bench_wide_in(folder: str, label: str, count: int) -> None:
    beside_doit("wide", folder, label, count, do_nothing, DOIT_WIDE)


def bench_printing(count: int = 1000) -> None:
    in_each_tree(bench_printing_in, count)


def bench_printing_in(folder: str, label: str, count: int) -> None:
    beside_doit("printing", folder, label, count, print_line, DOIT_PRINTING)


def bench_files(count: int = 1000) -> None:
    in_each_tree(bench_files_in, count)


def bench_files_in(folder: str, label: str, count: int) -> None:
    beside_doit("files", folder, label, count, write_data, DOIT_FILES)


def beside_doit(name: str, folder: str, label: str, count: int, fn: Callable[[Config], None], dodo: str) -> None:
    """Measure the first and the all-cached run of independent steps, alternating with doit's."""
    ours: dict[str, list[Measured]] = {"first": [], "cached": []}
    doit: dict[str, list[Measured]] = {"first": [], "cached": []}
    floor: list[float] = []

    def run_in(prefix: str) -> Measured:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            return measured(lambda: run_seconds(prefix, wide(count, fn)))

    for _ in range(TURNS):  # as the machine's speed drifts
        with fresh_prefix(folder) as prefix:
            ours["first"].append(run_in(prefix))
            ours["cached"].append(run_in(prefix))
        peer = doit_runs(dodo, count, folder)
        if peer is not None:
            doit["first"].append(peer[0])
            doit["cached"].append(peer[1])
        floor.append(floor_seconds(count, folder))
    for run, share in (("first", FIRST_RUN), ("cached", CACHED_RUN)):
        ms = {kind: ms_of(found[run], count) for kind, found in (("ours", ours), ("doit", doit)) if found[run]}
        line: dict[str, Any] = {"bench": f"executor-{name}-{run}{label}", "unit": "ms/step", "value": ms["ours"].wall}
        line["cpu"] = ms["ours"].cpu
        if run == "first":
            line["floor"] = round(statistics.median(floor) / count * 1e3, 3)
        if "doit" in ms:
            line |= {"doit": ms["doit"].wall, "doit_cpu": ms["doit"].cpu}
            line["ratio_to_doit"] = round(ms["ours"].wall / ms["doit"].wall, 2)
            line["ratio_of_cpu"] = round(ms["ours"].cpu / ms["doit"].cpu, 2)
            line |= {"target_ratio": share, "holds": line["ratio_to_doit"] <= share}
        print(json.dumps(line), flush=True)


def ms_of(found: list[Measured], count: int) -> Measured:
    """Return medians in ms per step."""
    return Measured(
        *(
            round(statistics.median(values) / count * 1e3, 3)
            for values in zip(*((m.wall, m.cpu) for m in found), strict=True)
        )
    )


def bench_chain_in(folder: str, label: str, count: int) -> None:
    def once() -> float:
        with fresh_prefix(folder) as prefix:
            return run_seconds(prefix, chain(count))

    ours = median_of(once)
    floor = median_of(lambda: floor_seconds(count, folder))
    peer = doit_runs(DOIT_CHAIN, count, folder)
    doit = None if peer is None else peer[0].wall / count * 1e3
    report(f"chain{label}", ours / count * 1e3, "ms/step", 2.0, doit=doit, floor=floor / count * 1e3)


def bench_six() -> None:
    with fresh_prefix() as prefix:
        report("six", run_seconds(prefix, chain(6, sleep_fifth)), "s", 1.25, sleeping=1.2)


def bench_sleeps() -> None:
    with fresh_prefix() as prefix:
        report("sleeps", run_seconds(prefix, wide(24, sleep_half)), "s", 0.7, sleeping=0.5)


def bench_layers() -> None:
    """Measure dry runs of deep layers. The version format quotes whole versions four deep, so MD5 must read long
    texts."""
    rate = md5_bytes_per_second()
    for depth, width, target, repeats in ((10, 20, 0.2, REPEATS), (40, 50, 3.0, 1)):
        steps = layers(depth, width)
        with contextlib.redirect_stdout(None):
            seconds = statistics.median(run_seconds("/prefix", steps, dry_run=True) for _ in range(repeats))
        report(f"layers-{depth}x{width}", seconds, "s", target, md5_alone=hashed_bytes(steps) / rate)
    memory = []
    for depth in (20, 40):
        steps = layers(depth, 30)
        tracemalloc.start()
        with contextlib.redirect_stdout(None):
            Executor("/prefix", "/prefix/experiments").run(steps, dry_run=True)
        memory.append(tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
    report("layers-memory-of-40x30", memory[1], "MB", 2.5 * memory[0], of_20x30=memory[0])


def hashed_bytes(steps: list[ExecutorStep[Any]]) -> int:
    """Return the bytes of text that MD5 must read: one text per layer, because a layer's steps differ only at the
    end."""
    from marin.execution.version.step_version import VersionCache

    cache = VersionCache()
    total, layer = 0, steps
    while layer:
        version = cache.version_of(layer[0])
        total += version.text.length
        layer = list(version.dependencies)
    return total


def md5_bytes_per_second() -> float:
    chunk = bytes(1 << 26)
    return len(chunk) / median_of(lambda: timed(lambda: hashlib.md5(chunk, usedforsecurity=False)))


def bench_path() -> None:
    names = [f"field_{index}" for index in range(1000)]
    kind = make_dataclass("Wide", names, frozen=True)
    config = kind(**{name: versioned(index) for index, name in enumerate(names)})
    seconds = statistics.median(timed(lambda: compute_output_path("n", config, prefix="/p")) for _ in range(30))
    content = {name: index for index, name in enumerate(names)}
    floor = statistics.median(timed(lambda: json.dumps(content, sort_keys=True)) for _ in range(30))
    report("path-of-1000-fields", seconds * 1e3, "ms", 2.0, json_alone=floor * 1e3)


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def bench_import() -> None:
    def once(code: str) -> float:
        return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    bare = median_of(lambda: once("pass"))
    ours = median_of(lambda: once("import marin.execution"))
    report("import", ours - bare, "s", 0.25, bare_python=bare)


def bench_requests(count: int = 100) -> None:
    from support.rigging.gcs_server import GcsServer

    with GcsServer() as server:
        os.environ.update(server.environment())
        server.create_bucket("benchmark")
        root = "gs://benchmark/prefix"

        def requests(work: Callable[[], object]) -> int:
            server.reset_traffic()
            work()
            return sum(traffic.requests.total() for traffic in server.traffic().values())

        from marin.execution.record.output_state import read_statuses

        run_seconds(root, [step("warm-up", 0)])
        nothing = requests(lambda: run_seconds(root, [step("warm-up", 0)]))
        first = requests(lambda: run_seconds(root, wide(count)))
        cached = requests(lambda: run_seconds(root, wide(count)))
        statuses = requests(lambda: read_statuses([f"{root}/all/s{index}-abcdef" for index in range(1000)]))
    report("requests-of-a-run-beside-its-steps", nothing, "requests", 6)
    report("requests-of-a-step", (first - nothing) / count, "requests", 6)
    report("requests-of-a-cached-step", (cached - nothing) / count, "requests", 1)
    report("requests-for-1000-statuses", statuses, "requests", 20)


BENCHMARKS = {
    "wide": bench_wide,
    "printing": bench_printing,
    "files": bench_files,
    "chain": bench_chain,
    "six": bench_six,
    "sleeps": bench_sleeps,
    "layers": bench_layers,
    "path": bench_path,
    "import": bench_import,
    "requests": bench_requests,
}


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    chosen = [word for word in sys.argv[1:] if not word.startswith("--")] or list(BENCHMARKS)
    for name in chosen:
        BENCHMARKS[name]()
    FOLDER.cleanup()


if __name__ == "__main__":
    main()
