"""Arrays of short tasks on real processes: the worker fills its slots itself, and no more than its slots."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.client import IrisClient, Job
from iris.client.connection.discovery import local_cluster
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.local.start import LocalCluster
from iris.local.stop import kill_cluster
from rigging.testing import eventually

pytestmark = pytest.mark.e2e

COUNT = 150


@pytest.fixture
def client(paths) -> Iterator[IrisClient]:
    with IrisClient.of(local_cluster(LocalCluster(paths))) as client:
        yield client
    kill_cluster(paths)


def submit(client: IrisClient, marks: Path, lock: Path) -> Job:
    """Each task asks for the whole worker, fails when another one runs, and leaves its index."""
    (worker,) = client.cluster_status().workers
    script = f"mkdir {lock} || exit 9; echo $IRIS_TASK_INDEX >> {marks}; rmdir {lock}"
    cores = ResourceSpec(cpu=worker.cpu, memory="64MB", disk="1MB")
    return client.submit(Entrypoint.from_command("sh", "-c", script), "short", cores, replicas=COUNT)


def done(marks: Path) -> list[int]:
    return sorted(map(int, marks.read_text().split())) if marks.exists() else []


def test_each_runs_once_and_one_at_a_time(client, tmp_path):
    job = submit(client, tmp_path / "marks", tmp_path / "lock")
    job.wait(timeout=120)
    assert job.state is JobState.SUCCEEDED
    assert done(tmp_path / "marks") == list(range(COUNT))
    tasks = client.list_tasks(job.job_id)
    assert all(0 < task.started_at_ms <= task.finished_at_ms for task in tasks)
    assert sum(task.preemptions + task.failures for task in tasks) == 0


def test_a_killed_worker_loses_none_of_those_that_waited_there(client, paths, tmp_path):
    """What it had not begun is not known to its guardian; the controller sends it again."""
    marks = tmp_path / "marks"
    job = submit(client, marks, tmp_path / "lock")
    eventually(lambda: len(done(marks)) > 30, "some have run")
    os.kill(int(paths.worker_lock.read_text()), signal.SIGKILL)
    job.wait(timeout=120)
    assert job.state is JobState.SUCCEEDED
    assert done(marks) == list(range(COUNT))
