"""Acquisition and release of one local lease by competing processes, compared with bare system calls in the same run.

usage: uv run --group dev python benchmarks/lease.py [--processes 8] [--seconds 3] [--repeats 3]

"Bare" is the minimum that is exclusive, survives a crash and numbers its holders: a kernel lock around writing a number
and renaming a file into place, and around its removal, without staleness, identity and checks. Prints one JSON line:
acquisitions per second of each kind, by all processes together and by one alone (medians).
"""

import argparse
import fcntl
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable


def ours(path: str) -> tuple[Callable[[], bool], Callable[[], object]]:
    from rigging.distributed_lock import create_lock

    lock = create_lock(path)
    return lock.try_acquire, lock.release


def bare(path: str) -> tuple[Callable[[], bool], Callable[[], object]]:
    temporary = f"{path}.{os.getpid()}"
    content = b'{"worker_id": "a-worker-of-usual-length", "timestamp": 1700000000.000000}'

    def acquire() -> bool:
        descriptor = os.open(path + ".fence", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.exists(path):
                return False
            number = int(os.pread(descriptor, 20, 0) or 0) + 1
            os.pwrite(descriptor, b"%020d" % number, 0)
            written = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(written, content)
            os.close(written)
            os.replace(temporary, path)
            return True
        finally:
            os.close(descriptor)

    def release() -> None:
        descriptor = os.open(path + ".fence", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.unlink(path)
        os.close(descriptor)

    return acquire, release


def contend(kind: str, path: str, seconds: float, barrier, counts) -> None:
    acquire, release = {"ours": ours, "bare": bare}[kind](path)
    barrier.wait()
    ends_at = time.monotonic() + seconds
    done = 0
    while time.monotonic() < ends_at:
        if acquire():
            release()
            done += 1
        else:
            os.sched_yield()
    counts.put(done)


def measure(kind: str, processes: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as directory:
        context = multiprocessing.get_context("fork")
        barrier, counts = context.Barrier(processes), context.SimpleQueue()
        arguments = (kind, os.path.join(directory, "x.lock"), seconds, barrier, counts)
        crowd = [context.Process(target=contend, args=arguments) for _ in range(processes)]
        for process in crowd:
            process.start()
        total = sum(counts.get() for _ in crowd)
        for process in crowd:
            process.join()
            assert process.exitcode == 0
        return total / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for kind in ("ours", "bare"):
            for processes in (options.processes, 1):
                figures.setdefault(f"{kind}_{processes}", []).append(measure(kind, processes, options.seconds))
    medians = {name: round(statistics.median(rates)) for name, rates in figures.items()}
    print(json.dumps({"benchmark": "local lease, acquisitions/s", **medians}))


if __name__ == "__main__":
    main()
