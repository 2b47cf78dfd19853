"""`map_files` on Iris and in local processes while workers and the driver are killed; Ray's part is `test_kills.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fray.testing.harness import BackendHarness
from fray.testing.waiting import eventually
from iris.client import IrisClient
from support.marin.map_runs import DRIVER, made, run_again

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FRAY_BACKENDS = ["iris", "local-process"]


def run_and_kill(harness: BackendHarness, place: Path, count: int) -> tuple[list[str], dict[str, str]]:
    """Kill a driver when thirty outputs are there; returns how it is started again."""
    (place / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(place / "driver.py"), str(place), str(count), "0"]
    env = {**os.environ, "FRAY_CLIENT": harness.spec}
    with subprocess.Popen(command, env=env) as driver:
        eventually(lambda: len(made(place / "out")) >= 30 or driver.poll() is not None, "outputs")
        driver.kill()
    return command, env


def test_kills_of_workers_and_driver_and_a_run_that_goes_on(fray_harness: BackendHarness, tmp_path: Path) -> None:
    command, env = run_and_kill(fray_harness, tmp_path, 80)
    assert 30 <= len(made(tmp_path / "out")) < 80
    # Of a worker that died, what it had found there counts as made, too.
    assert run_again(command, env, tmp_path, 80) > 0
    assert sorted(path.name for path in tmp_path.glob("died-*")) == ["died-32", "died-57", "died-7"]


@pytest.mark.soak
def test_workers_of_a_driver_that_was_killed_end(fray_harness: BackendHarness, tmp_path: Path) -> None:
    if fray_harness.name != "iris":
        pytest.skip("NOT TESTED on others: their jobs end with the client, see the contract")
    run_and_kill(fray_harness, tmp_path, 10_000)
    with IrisClient.local() as cluster:
        # They look for their driver for a minute.
        eventually(lambda: all(job.state.is_terminal for job in cluster.list_jobs()), "the workers' end", 150)
