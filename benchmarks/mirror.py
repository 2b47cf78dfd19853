"""The mirror compared with the simplest equivalent operations, in one run.

usage: uv run --group dev python benchmarks/mirror.py [NAME...]  (all of bytes, files, open, objects if none is named)

Files are made below TMPDIR. Exit code 2: no such name.

Prints one JSON line for each:
    bytes    1 GiB from one filesystem type to another (memory to disk, disk to memory): MB/s beside a plain chunked
             copy, and the extra memory that the copy took, in MiB
    files    2,000 files of 10 KB by prefetch beside `cp -r`; by first touch; and reading them when they are local
    open     microseconds of one open of a local file: builtin, fsspec's local filesystem, the mirror
    objects  2,000 objects of 10 KB between two regions on GCS with 20 ms latency: one after the other, by prefetch
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec

from rigging.filesystem import MirrorFileSystem, mirror_budget, mirror_prefetch

GIB = 2**30
FILES = 2000
FILE_BYTES = 10 * 1024
LATENCY_SECONDS = 0.02
REPEATS = 3
CHUNK = 8 * 2**20


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


@contextmanager
def prefixes(here: str, there: str) -> Iterator[None]:
    os.environ["MARIN_PREFIX"], os.environ["MARIN_MIRROR_PREFIXES"] = here, there
    with mirror_budget(100):
        yield


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_during(work: Callable[[], object]) -> float:
    """Return the peak growth of resident memory during `work`, in MiB."""
    before, highest, done = resident_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.002):
            highest = max(highest, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return round((highest - before) / 2**20, 1)


def plain_copy(source: str, target: str) -> None:
    with fsspec.open(source, "rb") as reader, fsspec.open(target, "wb") as writer:
        while data := reader.read(CHUNK):
            writer.write(data)


def bench_bytes(root: str) -> dict[str, object]:
    line: dict[str, object] = {"bench": "mirror-bytes", "bytes": GIB}
    memory = fsspec.filesystem("memory")
    here = f"{root}/here"
    block = os.urandom(64 * 2**20)

    def fill(url: str) -> None:
        with fsspec.open(url, "wb", auto_mkdir=True) as stream:
            for _ in range(GIB // len(block)):
                stream.write(block)

    def measure(name: str, source: str, there: str, local: str, drop: Callable[[], object]) -> None:
        plain: list[float] = []
        mirror: list[float] = []
        extra: list[float] = []

        def mirror_it() -> None:
            mirror.append(seconds(lambda: MirrorFileSystem().open("big").close()))

        for _ in range(REPEATS):
            plain.append(seconds(lambda: plain_copy(source, f"{local}/plain")))
            drop()
            with prefixes(local, there):
                extra.append(peak_during(mirror_it))
            drop()
        line[f"{name}_plain_mb_s"] = round(GIB / 1e6 / statistics.median(plain))
        line[f"{name}_mirror_mb_s"] = round(GIB / 1e6 / statistics.median(mirror))
        line[f"{name}_ratio"] = round(statistics.median(plain) / statistics.median(mirror), 2)
        line[f"{name}_extra_mib"] = max(extra)

    def drop_disk() -> None:
        shutil.rmtree(here)
        os.makedirs(here)

    os.makedirs(here)
    fill("memory://there/big")
    measure("memory_to_disk", "memory://there/big", "memory://there", here, drop_disk)
    memory.rm("/there", recursive=True)
    fill(f"{root}/there/big")

    def drop_memory() -> None:
        memory.store.clear()

    measure("disk_to_memory", f"{root}/there/big", f"{root}/there", "memory://here", drop_memory)
    # What the file itself takes in the memory filesystem is not the copy's.
    line["disk_to_memory_extra_mib"] = round(float(str(line["disk_to_memory_extra_mib"])) - GIB / 2**20, 1)
    return line


def make_files(root: str) -> list[str]:
    names = [f"data/{number % 20}/{number}" for number in range(FILES)]
    for name in names:
        path = Path(root, "there", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(FILE_BYTES))
    return names


def bench_files(root: str) -> dict[str, object]:
    names = make_files(root)
    there = f"{root}/there"
    copy: list[float] = []
    ahead: list[float] = []
    touch: list[float] = []
    local: list[float] = []

    def read_all() -> None:
        fs = MirrorFileSystem()
        for name in names:
            with fs.open(name) as stream:
                stream.read()

    def copy_all(target: str) -> None:
        subprocess.run(["cp", "-r", there, target], check=True)

    # Each time into new directories, and nothing is removed on the way: ext4 is slow to make files for some seconds
    # after many were removed, which would be charged to whoever comes next.
    for repeat in range(REPEATS + 2):
        copy.append(seconds(lambda target=f"{root}/copy-{repeat}": copy_all(target)))
        with prefixes(f"{root}/ahead-{repeat}", there):
            ahead.append(seconds(lambda: mirror_prefetch("data")))
            local.append(seconds(read_all))
        with prefixes(f"{root}/touched-{repeat}", there):
            touch.append(seconds(read_all))
    cp, prefetch = statistics.median(copy), statistics.median(ahead)
    return {
        "bench": "mirror-files",
        "files": FILES,
        "bytes_each": FILE_BYTES,
        "cp_s": round(cp, 3),
        "prefetch_s": round(prefetch, 3),
        "prefetch_ratio": round(cp / prefetch, 2),
        "first_touch_copying_files_s": round(FILES / statistics.median(touch)),
        "first_touch_local_files_s": round(FILES / statistics.median(local)),
    }


def bench_open(root: str) -> dict[str, object]:
    names = make_files(root)
    plain = fsspec.filesystem("file")

    def microseconds(opened: Callable[[str], object]) -> float:
        def every() -> None:
            for name in names:
                opened(name).close()  # type: ignore[attr-defined]

        return min(seconds(every) for _ in range(2 * REPEATS)) / FILES * 1e6

    with prefixes(f"{root}/there", "memory://elsewhere"):
        builtin = microseconds(lambda name: open(f"{root}/there/{name}", "rb"))  # noqa: SIM115
        local = microseconds(lambda name: plain.open(f"{root}/there/{name}", "rb"))
        mirror = microseconds(MirrorFileSystem().open)
    return {
        "bench": "mirror-open",
        "builtin_us": round(builtin, 1),
        "fsspec_local_us": round(local, 1),
        "mirror_us": round(mirror, 1),
        "added_to_builtin_us": round(mirror - builtin, 1),
    }


def bench_objects(root: str) -> dict[str, object]:
    from support.rigging.faults import Fault, FaultKind
    from support.rigging.gcs_server import GcsServer

    with GcsServer() as server:
        os.environ.update(server.environment())
        server.create_bucket("marin-us-east1", "us-east1")
        server.create_bucket("marin-us-west4", "us-west4")
        fs = fsspec.filesystem("gs", use_listings_cache=False)
        names = [f"data/{number % 20}/{number}" for number in range(FILES)]
        fs.pipe({f"marin-us-west4/{name}": os.urandom(FILE_BYTES) for name in names})
        server.inject(Fault(FaultKind.LATENCY, seconds=LATENCY_SECONDS))
        some = names[:100]
        singly = seconds(
            lambda: [fs.cp_file(f"marin-us-west4/{name}", f"marin-us-east1/by-one/{name}") for name in some]
        )
        through = seconds(
            lambda: [fs.pipe_file(f"marin-us-east1/by-two/{n}", fs.cat_file(f"marin-us-west4/{n}")) for n in some]
        )
        with prefixes("gs://marin-us-east1", "gs://marin-us-west4"):
            prefetch = seconds(lambda: mirror_prefetch("data"))
        copied = fs.find("marin-us-east1/data")
        assert len(copied) == FILES
    one_by_one, read_and_write = (took * FILES / len(some) for took in (singly, through))
    return {
        "bench": "mirror-objects",
        "objects": FILES,
        "latency_ms": LATENCY_SECONDS * 1000,
        "server_side_one_by_one_s": round(one_by_one, 2),
        "read_and_write_one_by_one_s": round(read_and_write, 2),
        "prefetch_s": round(prefetch, 2),
        "times_faster_than_server_side": round(one_by_one / prefetch, 1),
        "times_faster_than_read_and_write": round(read_and_write / prefetch, 1),
    }


BENCHES = {"bytes": bench_bytes, "files": bench_files, "open": bench_open, "objects": bench_objects}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.usage = "%(prog)s [NAME...]"
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHES)} (default: all)")
    names = parser.parse_args().names
    for name in names:
        if name not in BENCHES:
            parser.error(f"there is no benchmark {name!r}: choose from {', '.join(BENCHES)}")
    for name in names or BENCHES:
        with tempfile.TemporaryDirectory(prefix="mirror-bench-") as root:
            print(json.dumps(BENCHES[name](root)), flush=True)


if __name__ == "__main__":
    main()
