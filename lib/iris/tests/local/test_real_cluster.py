"""The embedded cluster with its real processes."""

import os
import signal
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.cli.main import run as iris
from iris.client import IrisClient
from iris.client.connection.discovery import local_cluster
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.local.start import LocalCluster
from iris.local.state import is_locked, wait_unlocked
from iris.local.stop import kill_cluster
from rigging.errors import Unavailable

pytestmark = pytest.mark.process


@pytest.fixture
def real(paths):
    yield lambda **options: LocalCluster(paths, **options)
    kill_cluster(paths)
    assert not is_locked(paths.worker_lock)


def test_a_killed_controller_is_replaced_on_its_port_and_its_worker_is_kept(real, paths):
    first = real().ensure().record
    worker = int(paths.worker_lock.read_text())
    os.kill(first.pid, signal.SIGKILL)
    assert wait_unlocked(paths.controller_lock, timeout=10)
    second = real().ensure()
    assert second.started
    assert (second.record.address, second.record.pid != first.pid) == (first.address, True)
    assert int(paths.worker_lock.read_text()) == worker


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


def gone(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return True


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
    eventually(lambda: all(map(gone, pids.read_text().split())), "nothing is left of it")


def test_a_worker_that_cannot_start_is_told_and_starts_once_it_can(real, paths, monkeypatch, capfd):
    monkeypatch.setenv("IRIS_STATE_DIR", str(paths.root))
    paths.make()
    paths.worker_dir.write_text("in the way")
    with pytest.raises(Unavailable, match=rf"worker does not start: {paths.worker_dir}: File exists \(its log: "):
        real().ensure()
    assert iris(["cluster", "status"]) == 0
    assert f"worker:     does not start: {paths.worker_dir}: File exists" in capfd.readouterr().out
    with IrisClient.of(local_cluster(real())) as client:
        job = client.submit(Entrypoint.from_command("true"), "waits", ResourceSpec(cpu=0.1))
        eventually(lambda: job.status().pending_reason, "it waits")
        assert job.status().pending_reason.startswith("no worker is connected; a worker does not start: ")
        paths.worker_dir.unlink()
        assert job.wait(timeout=30).state is JobState.SUCCEEDED
        assert client.cluster_status().worker_trouble == ""


def test_a_killed_worker_loses_none_of_the_short_tasks_that_waited_there(real, paths, tmp_path):
    """What it had not begun is not known to its guardian; the controller sends it again."""
    count, lock, marks = 100, tmp_path / "lock", tmp_path / "marks"

    def done() -> list[int]:
        return sorted(map(int, marks.read_text().split())) if marks.exists() else []

    with IrisClient.of(local_cluster(real())) as client:
        (worker,) = client.cluster_status().workers
        # Each asks for the whole worker, and fails when another one runs.
        script = f"mkdir {lock} || exit 9; echo $IRIS_TASK_INDEX >> {marks}; rmdir {lock}"
        cores = ResourceSpec(cpu=worker.cpu, memory="64MB", disk="1MB")
        job = client.submit(Entrypoint.from_command("sh", "-c", script), "short", cores, replicas=count)
        eventually(lambda: len(done()) > 20, "some have run")
        os.kill(int(paths.worker_lock.read_text()), signal.SIGKILL)
        job.wait(timeout=120)
        assert job.state is JobState.SUCCEEDED
        assert done() == list(range(count))
        tasks = client.list_tasks(job.job_id)
        assert all(0 < task.started_at_ms <= task.finished_at_ms for task in tasks)
