"""The controller and the worker are killed again and again under load: nothing is lost, no line is repeated."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from iris.client import IrisClient
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.local.start import LocalCluster
from iris.local.state import LocalPaths, wait_unlocked
from iris.local.stop import kill_cluster
from rigging.testing import eventually

pytestmark = pytest.mark.e2e

LINES = 12
# Each attempt prints numbered lines and leaves one mark for its start and one for its end.
SCRIPT = (
    f"echo start >> {{marks}}; i=0; while [ $i -lt {LINES} ]; do echo {{name}} line $i; i=$((i+1)); sleep 0.02; done; "
    "echo end >> {marks}"
)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    paths = LocalPaths(tmp_path / "state")
    monkeypatch.setenv("IRIS_STATE_DIR", str(paths.root))
    yield paths
    kill_cluster(paths)


def kill_controller(paths: LocalPaths) -> None:
    """kill -9 the controller, then do what any iris command does: bring it back."""
    os.kill(json.loads(paths.record.read_text())["pid"], signal.SIGKILL)
    assert wait_unlocked(paths.controller_lock, timeout=10)
    LocalCluster(paths).ensure()


@pytest.mark.parametrize(
    ("kills", "jobs"), [(3, 30), pytest.param(25, 200, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_a_controller_killed_again_and_again_loses_and_repeats_nothing(paths, tmp_path, kills, jobs):
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    print(f"seed {seed}")  # shown when the test fails
    LocalCluster(paths).ensure()
    with IrisClient.local() as client:
        submitted = []
        kill_before = sorted(chance.randrange(jobs) for _ in range(kills))
        for number in range(jobs):
            while kill_before and kill_before[0] == number:
                kill_before.pop(0)
                kill_controller(paths)
            name, marks = f"job-{number}", tmp_path / f"marks-{number}"
            command = Entrypoint.from_command("sh", "-c", SCRIPT.format(name=name, marks=marks))
            submitted.append(client.submit(command, name, ResourceSpec(cpu=0.1, memory="16MB", disk="1MB")))
        ends = client.wait_jobs(submitted, timeout=300)
        assert [status.state for status in ends] == [JobState.SUCCEEDED] * jobs
        for number in range(jobs):
            assert (tmp_path / f"marks-{number}").read_text() == "start\nend\n", f"job-{number} ran more than once"
            (task,) = client.list_tasks(submitted[number].job_id)
            lines = [line.text for line in client.read_logs(task.task_id)]
            assert lines == [f"job-{number} line {i}" for i in range(LINES)]


@pytest.mark.parametrize(
    ("kills", "jobs"), [(2, 20), pytest.param(10, 100, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_a_worker_killed_again_and_again_interrupts_no_task(paths, tmp_path, kills, jobs):
    chance = random.Random(kills)
    LocalCluster(paths).ensure()
    with IrisClient.local() as client:
        submitted = []
        for number in range(jobs):
            command = Entrypoint.from_command(
                "sh", "-c", SCRIPT.format(name=number, marks=tmp_path / f"marks-{number}")
            )
            submitted.append(client.submit(command, f"job-{number}", ResourceSpec(cpu=0.1, memory="16MB", disk="1MB")))
        for _ in range(kills):
            worker = int(paths.worker_lock.read_text())
            time.sleep(chance.uniform(0.05, 0.4))  # the moment of the kill is what is varied here
            os.kill(worker, signal.SIGKILL)
            eventually(
                lambda worker=worker: paths.worker_lock.read_text().strip() not in ("", str(worker)),
                f"another worker comes after {worker}",
            )
        ends = client.wait_jobs(submitted, timeout=300)
        assert [status.state for status in ends] == [JobState.SUCCEEDED] * jobs
        for number in range(jobs):
            marks = (tmp_path / f"marks-{number}").read_text().split()
            (task,) = client.list_tasks(submitted[number].job_id)
            assert (marks, task.failures) == (["start", "end"], 0), "what has begun is not interrupted"
            last = [line.text for line in client.read_logs(task.task_id) if line.attempt == task.attempt]
            assert last == [f"{number} line {i}" for i in range(LINES)]
