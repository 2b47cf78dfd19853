"""Many processes read the same files at once: each crosses once, is paid for once, and is right; also under kills."""

import collections
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROCESSES = 20

# A reader: opens all files in an order of its own and checks them. What its source filesystem reads goes into a
# journal, one line a read, so that what crossed is counted at the source and not by the code under test.
READER = """
import hashlib, json, os, random, sys
import fsspec
from fsspec.implementations.local import LocalFileSystem

journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

class CountedFileSystem(LocalFileSystem):
    protocol = "counted"

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(str(path).removeprefix("counted://"))

    def cat_file(self, path, start=None, end=None, **kwargs):
        data = super().cat_file(path, start, end, **kwargs)
        os.write(journal, f"{os.getpid()} {os.path.basename(path)} {len(data)}\\n".encode())
        return data

fsspec.register_implementation("counted", CountedFileSystem)

from rigging.filesystem.budget import current_budget
from rigging.mirror.fs import MirrorFileSystem

fs = MirrorFileSystem(heartbeat_interval=0.5, heartbeat_timeout=3.0)
count = int(sys.argv[2])
names = [str(number) for number in range(count)]
random.Random(int(sys.argv[3])).shuffle(names)
print("ready", flush=True)
sys.stdin.readline()
for name in names:
    with fs.open("d/" + name) as stream:
        data = stream.read()
    size = 200 + 37 * (int(name) % 97)
    if len(data) != size or data != (hashlib.sha256(name.encode()).digest() * (size // 32 + 1))[:size]:
        sys.exit(f"{name}: wrong content, {len(data)} bytes")
print(json.dumps({"pid": os.getpid(), "used": current_budget().bytes_used}), flush=True)
"""


def content(number: int) -> bytes:
    size = 200 + 37 * (number % 97)
    return (hashlib.sha256(str(number).encode()).digest() * (size // 32 + 1))[:size]


@dataclass
class Reads:
    """Return the reads at the source as (pid, file, bytes), and each finished reader's budget by pid."""

    journal: list[tuple[int, str, int]]
    used: dict[int, int]
    killed: set[int]


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def run_readers(tmp_path: Path, count: int, kills: int, environment: dict[str, str]) -> Reads:
    journal = tmp_path / "journal"
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(journal), str(count), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for seed in range(PROCESSES)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
        for reader in readers:
            assert reader.stdin is not None
            reader.stdin.write("\n")
            reader.stdin.flush()
        victims = random.Random(7).sample(readers, kills)
        for number, victim in enumerate(victims, start=1):
            # Spread over the time in which files are copied, by what has been copied and not by the clock.
            while len(lines_of(journal)) < number * count // (kills + 2) and victim.poll() is None:
                time.sleep(0.001)
            victim.send_signal(signal.SIGKILL)
        used: dict[int, int] = {}
        killed: set[int] = set()
        for reader in readers:
            out, _ = reader.communicate(timeout=600)
            if reader.returncode == -signal.SIGKILL:
                killed.add(reader.pid)
            else:
                assert reader.returncode == 0, f"a reader failed with {reader.returncode}"
                used[reader.pid] = json.loads(out)["used"]
    finally:
        for reader in readers:
            if reader.poll() is None:
                reader.kill()
                reader.wait()
    reads = [line.split() for line in lines_of(journal)]
    return Reads([(int(pid), name, int(size)) for pid, name, size in reads], used, killed)


SLOW = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(
    params=[("local", 60), pytest.param(("local", 2000), marks=SLOW), pytest.param(("gcs", 300), marks=SLOW)],
    ids=lambda case: f"{case[0]}-{case[1]}",
)
def case(request: pytest.FixtureRequest, make_prefix: Any, tmp_path: Path) -> tuple[str, int]:
    """The local prefix, and how many files there are in the other region."""
    store, number = request.param
    (tmp_path / "there" / "d").mkdir(parents=True)
    for name in range(number):
        (tmp_path / "there" / "d" / str(name)).write_bytes(content(name))
    return make_prefix(store), number


def check_copies(here: str, count: int) -> None:
    import fsspec

    fs, base = fsspec.core.url_to_fs(here, use_listings_cache=False)
    found = fs.cat(fs.find(f"{base}/d"))
    named = {path.rpartition("/")[2]: data for path, data in found.items()}
    parts = {name for name in named if name.startswith(".marin-tmp")}
    assert named.keys() - parts == {str(number) for number in range(count)}
    assert all(named[str(number)] == content(number) for number in range(count))


@pytest.mark.e2e
def test_each_file_crosses_once(tmp_path: Path, case: tuple[str, int]):
    here, count = case
    prefixes = {"MARIN_PREFIX": here, "MARIN_MIRROR_PREFIXES": f"counted://{tmp_path}/there"}
    reads = run_readers(tmp_path, count, 0, prefixes)
    assert sorted(name for _, name, _ in reads.journal) == sorted(map(str, range(count)))
    crossed = sum(size for _, _, size in reads.journal)
    assert crossed == sum(len(content(number)) for number in range(count))
    assert sum(reads.used.values()) == crossed
    check_copies(here, count)


@pytest.mark.e2e
def test_each_file_crosses_once_though_half_of_the_readers_are_killed(tmp_path: Path, case: tuple[str, int]):
    here, count = case
    prefixes = {"MARIN_PREFIX": here, "MARIN_MIRROR_PREFIXES": f"counted://{tmp_path}/there"}
    reads = run_readers(tmp_path, count, PROCESSES // 2, prefixes)
    assert len(reads.used) >= PROCESSES // 2
    crossings = collections.Counter(name for _, name, _ in reads.journal)
    assert crossings.keys() == set(map(str, range(count)))
    for name, times in crossings.items():
        by_dead = sum(1 for pid, read, _ in reads.journal if read == name and pid in reads.killed)
        assert times == 1 or times - by_dead <= 1, f"{name} crossed {times} times, {by_dead} of them for the dead"
    assert sum(crossings.values()) - count <= len(reads.killed), "a kill costs at most the file that it cut short"
    for pid, used in reads.used.items():
        assert used == sum(size for reader, _, size in reads.journal if reader == pid)
    check_copies(here, count)
