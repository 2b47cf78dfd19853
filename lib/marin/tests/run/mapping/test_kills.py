"""`map_files` on Ray while its processes are killed: workers, the queue, the driver."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fray import ResourceConfig
from fray.client import Client
from fray.testing.ray_harness import RayCluster
from fray.testing.waiting import eventually
from marin.run import map_files
from support.marin.map_runs import DRIVER, made, run_again

pytestmark = [pytest.mark.ray, pytest.mark.process, pytest.mark.timeout(400)]

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
    assert list(place.glob(".*")) == [], "the folder of the worker that died went with the second run"


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_thousand_files_while_workers_the_queue_and_the_driver_are_killed(tmp_path: Path) -> None:
    seed = random.randrange(1000)
    print("seed", seed)
    chance = random.Random(seed)
    (tmp_path / "storm.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "storm.py"), str(tmp_path), "2000"]
    with RayCluster(cpus=4).running() as cluster:
        env = {**os.environ, "FRAY_CLIENT": "ray", "RAY_ADDRESS": cluster.address}
        for after in sorted(chance.sample(range(100, 1500), 3)):
            with subprocess.Popen([*command, "0.005"], env=env, stderr=subprocess.DEVNULL) as driver:
                eventually(lambda: len(made(tmp_path / "out")) >= after or driver.poll() is not None, "outputs", 600)  # noqa: B023
                driver.kill()
        run_again([*command, "0.002"], env, tmp_path, 2000)
