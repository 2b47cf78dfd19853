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


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def run_readers(journal: Path, count: int, kills: int, environment: dict[str, str]) -> tuple[dict[int, int], set[int]]:
    """Kill some readers on the way; return each finished reader's budget by pid, and the pids of the killed."""
    command = [sys.executable, "-c", READER, str(journal), str(count)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": {**os.environ, **environment}}
    readers: list[Any] = [subprocess.Popen([*command, str(seed)], **pipes) for seed in range(PROCESSES)]
    try:
        for reader in readers:
            assert reader.stdout.readline() == "ready\n"
        for reader in readers:
            reader.stdin.write("\n")
            reader.stdin.flush()
        for number, victim in enumerate(random.Random(7).sample(readers, kills), start=1):
            # Spread over the time in which files are copied, by what has been copied and not by the clock.
            while len(lines_of(journal)) < number * count // (kills + 2) and victim.poll() is None:
                time.sleep(0.001)
            victim.send_signal(signal.SIGKILL)
        said = {reader: reader.communicate(timeout=600)[0] for reader in readers}
    finally:
        for reader in readers:
            if reader.poll() is None:
                reader.kill()
                reader.wait()
    killed = {reader.pid for reader in readers if reader.returncode == -signal.SIGKILL}
    assert {reader.returncode for reader in readers if reader.pid not in killed} == {0}
    return {reader.pid: json.loads(out)["used"] for reader, out in said.items() if reader.pid not in killed}, killed


SLOW = [pytest.mark.soak, pytest.mark.timeout(1200)]


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


@pytest.mark.process
@pytest.mark.parametrize("kills", [0, PROCESSES // 2])
def test_each_file_crosses_once_though_readers_are_killed(tmp_path: Path, case: tuple[str, int], kills: int):
    here, count = case
    journal = tmp_path / "journal"
    prefixes = {"MARIN_PREFIX": here, "MARIN_MIRROR_PREFIXES": f"counted://{tmp_path}/there"}
    used, killed = run_readers(journal, count, kills, prefixes)
    assert len(killed) <= kills
    reads = [(int(pid), name, int(size)) for pid, name, size in (line.split() for line in lines_of(journal))]
    crossings = collections.Counter(name for _, name, _ in reads)
    assert crossings.keys() == set(map(str, range(count)))
    for name, times in crossings.items():
        by_dead = sum(1 for pid, read, _ in reads if read == name and pid in killed)
        assert times == 1 or times - by_dead <= 1, f"{name} crossed {times} times, {by_dead} of them for the dead"
    assert sum(crossings.values()) - count <= len(killed), "a kill costs at most the file that it cut short"
    for pid, bytes_used in used.items():
        assert bytes_used == sum(size for reader, _, size in reads if reader == pid)
    check_copies(here, count)
