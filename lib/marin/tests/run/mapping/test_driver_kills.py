"""`map_files` on Iris and in local processes while workers and the driver are killed; Ray's part is `test_kills.py`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fray.testing.harness import BackendHarness
from iris.client import IrisClient
from marin.testing.map_runs import begun_after_success, made
from rigging.testing import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FRAY_BACKENDS = ["iris", "local-process"]

DRIVER = """
import json, os, signal, sys, time
from pathlib import Path
from fray import ResourceConfig
from marin.run import map_files

place, count = Path(sys.argv[1]), int(sys.argv[2])
out = place / "out"

def make(source, path):
    with open(place / "calls", "a") as calls:
        calls.write(json.dumps([source, time.time()]) + "\\n")
    with open(path, "w") as file:
        file.write(source * 500)
        file.flush()
        if int(source) % 25 == 7 and not (place / f"died-{source}").exists():
            (place / f"died-{source}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.005)
        file.write(source * 500)

result = map_files(
    make, map(str, range(count)), lambda source: out / source, max_workers=2, batch_seconds=0.1,
    manifest=place / "manifest.jsonl", resources=ResourceConfig.with_cpu(cpu=0.2, ram="64m"),
)
print(json.dumps([result.total, result.succeeded, result.existed]))
"""


def run_and_kill(harness: BackendHarness, place: Path, count: int, after: int) -> tuple[list[str], dict[str, str]]:
    """Kill a driver when so many outputs are there; returns how it is started again."""
    (place / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(place / "driver.py"), str(place), str(count)]
    env = {**os.environ, "FRAY_CLIENT": harness.spec}
    with subprocess.Popen(command, env=env) as driver:
        eventually(lambda: len(made(place / "out")) >= after or driver.poll() is not None, "outputs")
        driver.kill()
    return command, env


def test_kills_of_workers_and_of_the_driver_and_a_run_that_goes_on(
    fray_harness: BackendHarness, tmp_path: Path
) -> None:
    count, out = 80, tmp_path / "out"
    command, env = run_and_kill(fray_harness, tmp_path, count, after=30)
    before = {name: os.stat(out / name).st_mtime_ns for name in made(out)}
    assert 30 <= len(before) < count
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    total, succeeded, existed = json.loads(done.stdout)
    assert (total, succeeded + existed) == (count, count)
    # Of a worker that died, what it had found there counts as made, too.
    assert existed > 0
    assert all((out / str(number)).read_text() == str(number) * 1000 for number in range(count))
    assert {name: os.stat(out / name).st_mtime_ns for name in before} == before, "what was there was not touched"
    assert begun_after_success(tmp_path / "calls", out) == []
    assert sorted(path.name for path in tmp_path.glob("died-*")) == ["died-32", "died-57", "died-7"]
    lines = [json.loads(line) for line in (tmp_path / "manifest.jsonl").read_text().splitlines()]
    assert sorted(int(line["input"]) for line in lines) == list(range(count))


@pytest.mark.slow
def test_workers_of_a_driver_that_was_killed_end(fray_harness: BackendHarness, tmp_path: Path) -> None:
    if fray_harness.name != "iris":
        pytest.skip("NOT TESTED on others: their jobs end with the client, see the contract")
    run_and_kill(fray_harness, tmp_path, 10_000, after=30)
    with IrisClient.local() as cluster:
        # They look for their driver for a minute.
        eventually(lambda: all(job.state.is_terminal for job in cluster.list_jobs()), "the workers' end", 150)
