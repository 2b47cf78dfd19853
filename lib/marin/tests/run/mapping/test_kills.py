"""`map_files` on Ray while its processes are killed: workers, the queue, the driver."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fray import ResourceConfig
from fray.client import Client
from fray.testing.ray_harness import RayCluster
from marin.run import map_files
from marin.testing.map_runs import begun_after_success, made

pytestmark = [pytest.mark.ray, pytest.mark.e2e, pytest.mark.timeout(400)]

FRAY_BACKENDS = ["ray"]
SMALL = ResourceConfig.with_cpu(cpu=1, ram="64m", disk="1m")


def test_workers_that_die_and_a_second_run(fray_client: Client, tmp_path: Path) -> None:
    flag = tmp_path / "died"

    def make(source: str, path: str) -> None:
        if source == "17" and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if source == "23":
            raise ValueError("not this one")
        Path(path).write_text(source)

    inputs = [str(number) for number in range(60)]
    place = tmp_path / "out"
    options = {"max_workers": 2, "resources": SMALL, "client": fray_client, "raise_on_failure": False}
    result = map_files(make, inputs, lambda source: place / source, **options)  # type: ignore[arg-type]
    assert flag.exists()
    assert (result.succeeded, result.failed) == (59, 1)
    assert result.failures[0].error == "ValueError: not this one"
    assert all((place / source).read_text() == source for source in inputs if source != "23")
    again = map_files(make, inputs, lambda source: place / source, **options)  # type: ignore[arg-type]
    assert (again.succeeded, again.existed, again.failed) == (0, 59, 1)


STORM = """
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

def make(source, path):
    with open(place / "calls", "a") as calls:
        calls.write(json.dumps([source, time.time()]) + "\\n")
    with open(path, "w") as file:
        file.write(source * 500)
        file.flush()
        chance = random.random()
        if chance < kills:
            os.kill(os.getpid(), signal.SIGKILL)
        elif chance < 1.1 * kills:
            kill_one(queue=True)
        elif chance < 1.5 * kills:
            kill_one(queue=False)
        file.write(source * 500)

result = map_files(
    make, map(str, range(count)), lambda source: out / source, max_workers=3, max_retries_failure=20,
    manifest=str(place / "manifest.jsonl"), resources=ResourceConfig.with_cpu(cpu=1, ram="64m", disk="1m"),
    batch_seconds=0.2,
)
print(json.dumps([result.total, result.succeeded, result.existed]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_thousand_files_while_workers_the_queue_and_the_driver_are_killed(tmp_path: Path) -> None:
    count, out = 2000, tmp_path / "out"
    seed = random.randrange(1000)
    print("seed", seed)
    chance = random.Random(seed)
    script = tmp_path / "storm.py"
    script.write_text(STORM)
    command = [sys.executable, str(script), str(tmp_path), str(count)]
    with RayCluster(cpus=4).running() as cluster:
        env = {**os.environ, "FRAY_CLIENT": "ray", "RAY_ADDRESS": cluster.address}
        for after in sorted(chance.sample(range(100, 1500), 3)):
            with subprocess.Popen([*command, "0.005"], env=env, stderr=subprocess.DEVNULL) as driver:
                while len(made(out)) < after and driver.poll() is None:
                    time.sleep(0.02)
                driver.kill()
        before = {name: os.stat(out / name).st_mtime_ns for name in made(out)}
        done = subprocess.run([*command, "0.002"], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-5000:]
    # Ray tells there of workers that died.
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("[2000")]
    total, succeeded, existed = json.loads(line)
    assert (total, succeeded + existed) == (count, count)
    for number in range(count):
        assert (out / str(number)).read_text() == str(number) * 1000, number
    assert {name: os.stat(out / name).st_mtime_ns for name in before} == before, "what was there was not touched"
    assert begun_after_success(tmp_path / "calls", out) == []
    lines = [json.loads(line) for line in (tmp_path / "manifest.jsonl").read_text().splitlines()]
    assert sorted(int(line["input"]) for line in lines) == list(range(count))
    calls = (tmp_path / "calls").read_text().count("\n")
    print(calls, "calls for", count, "files;", existed, "of them there before the last run")
