"""The embedded cluster with its real processes."""

import os
import signal

import pytest

from fray.testing.waiting import eventually
from iris.client import IrisClient
from iris.client.connection.discovery import local_cluster
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.local.start import LocalCluster
from iris.local.state import is_locked, wait_unlocked
from iris.local.stop import kill_cluster
from support.rigging.processes import is_gone

pytestmark = pytest.mark.process


@pytest.fixture
def real(paths):
    yield lambda **options: LocalCluster(paths, **options)
    kill_cluster(paths)
    assert not is_locked(paths.worker_lock)


def test_the_task_of_a_killed_worker_goes_on_and_that_of_a_killed_guardian_runs_again(real, paths, tmp_path):
    with IrisClient.of(local_cluster(real())) as client:
        go, marks = tmp_path / "go", tmp_path / "marks"
        os.mkfifo(go)
        # The first attempt says what it reads and stays; the second one finds its mark and ends.
        command = f"echo started >> {marks}; test $(wc -l < {marks}) -gt 1 || (read x < {go}; echo $x; exec sleep 600)"
        job = client.submit(Entrypoint.from_command("sh", "-c", command), "twice", ResourceSpec(cpu=0.1))
        eventually(lambda: marks.exists() and marks.read_text(), "the task started")
        first = int(paths.worker_lock.read_text())
        os.kill(first, signal.SIGKILL)
        eventually(lambda: paths.worker_lock.read_text().strip() not in ("", str(first)), "another worker comes")
        go.write_text("after\n")
        eventually(lambda: [line.text for line in client.read_logs(f"{job.job_id}/0")] == ["after"], "its log goes on")
        os.kill(int(paths.guardian_lock.read_text()), signal.SIGKILL)
        assert job.wait(timeout=60).state is JobState.SUCCEEDED
        assert marks.read_text() == "started\nstarted\n"
        (task,) = client.list_tasks(job.job_id)
        assert (task.attempt, task.failures, task.preemptions) == (1, 0, 1)


@pytest.mark.parametrize("lives", [True, False])
def test_tasks_of_a_frozen_worker_and_those_that_outlived_theirs_are_ended_by_force(real, paths, tmp_path, lives):
    with IrisClient.of(local_cluster(real())) as client:
        pids = tmp_path / "pids"
        command = f"env -i setsid sleep 600 & echo $! $$ > {pids}; exec sleep 600"
        client.submit(Entrypoint.from_command("sh", "-c", command), "stays", ResourceSpec(cpu=0.1))
        eventually(lambda: pids.exists() and pids.read_text(), "the task started")
    if lives:
        os.kill(int(paths.worker_lock.read_text()), signal.SIGSTOP)
    else:
        for lock in (paths.controller_lock, paths.worker_lock, paths.guardian_lock):
            os.kill(int(lock.read_text()), signal.SIGKILL)
            assert wait_unlocked(lock, timeout=10)
    kill_cluster(paths)
    assert not is_locked(paths.worker_lock)
    assert not is_locked(paths.guardian_lock)
    eventually(lambda: all(map(is_gone, pids.read_text().split())), "nothing is left of it")
