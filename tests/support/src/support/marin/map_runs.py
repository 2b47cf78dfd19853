"""Drivers of `map_files` with a function that kills processes, and traces of their runs."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_AT_ONCE_SECONDS: Final = 2.0

DRIVER: Final = """
import json, os, random, signal, sys, time
from pathlib import Path
from fray import ResourceConfig
from marin.run import map_files

place, count, kills = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
out = place / "out"

def kill_one(queue):
    found = []
    for name in os.listdir("/proc"):
        try:
            title = Path(f"/proc/{name}/cmdline").read_text() if name.isdigit() else ""
        except OSError:
            continue
        # Not a node's agents, with which it would end as a whole.
        if title.startswith("ray::ActorHost" if queue else "ray::") and "Agent" not in title:
            found.append(int(name))
    if found:
        os.kill(random.choice(found), signal.SIGKILL)

def strike(source):
    chance = random.random()
    if not kills and int(source) % 25 == 7 and not (place / f"died-{source}").exists():
        (place / f"died-{source}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    elif chance < kills:
        os.kill(os.getpid(), signal.SIGKILL)
    elif chance < 1.5 * kills:
        kill_one(queue=chance < 1.1 * kills)

def make(source, path):
    with open(place / "calls", "a") as calls:
        calls.write(json.dumps([source, time.time()]) + "\\n")
    with open(path, "w") as file:
        file.write(source * 500)
        file.flush()
        strike(source)
        time.sleep(0 if kills else 0.005)
        file.write(source * 500)

result = map_files(
    make, map(str, range(count)), lambda source: out / source, max_workers=3 if kills else 2, batch_seconds=0.1,
    max_retries_failure=20 if kills else 2, manifest=place / "manifest.jsonl",
    resources=ResourceConfig.with_cpu(cpu=1 if kills else 0.2, ram="64m", disk="1m" if kills else "64m"),
)
print(json.dumps([result.total, result.succeeded, result.existed]))
"""
"""Arguments: a folder, the number of inputs, and the probability that a call kills a process of Ray (0: each 25th kills
its own, once)."""


def made(out: Path) -> list[str]:
    return [name for name in os.listdir(out) if not name.startswith(".")] if out.exists() else []


def run_again(command: Sequence[str], env: Mapping[str, str], place: Path, count: int) -> int:
    """Run a driver to its end after others were killed, and check all outputs. Return the number of existing ones."""
    out = place / "out"
    before = {name: os.stat(out / name).st_mtime_ns for name in made(out)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    # Ray tells there of workers that died.
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"[{count}")]
    total, succeeded, existed = json.loads(line)
    assert (total, succeeded + existed) == (count, count)
    assert all((out / str(number)).read_text() == str(number) * 1000 for number in range(count))
    assert {name: os.stat(out / name).st_mtime_ns for name in before} == before, "what was there was not touched"
    assert _begun_after_success(place / "calls", out) == []
    lines: list[dict[str, Any]] = [json.loads(line) for line in (place / "manifest.jsonl").read_text().splitlines()]
    assert sorted(int(line["input"]) for line in lines) == list(range(count))
    return int(existed)


def _begun_after_success(calls: Path, out: Path) -> list[str]:
    """Return inputs for which the function was called although their output existed.

    A worker of a killed driver may still run when the next driver assigns its file to another. Calls that began no
    later than the first success do not count.
    """
    found: list[str] = []
    for line in calls.read_text().splitlines():
        source, began = json.loads(line)
        if began > os.stat(out / source).st_mtime + _AT_ONCE_SECONDS:
            found.append(source)
    return found
