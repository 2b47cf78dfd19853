"""The embedded cluster with its real processes."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris.cli.main import run as iris
from iris.client import IrisClient
from iris.client.connection.discovery import local_cluster
from iris.cluster.types import Entrypoint, JobState, ResourceSpec
from iris.local.start import LocalCluster
from iris.local.state import is_locked, wait_unlocked
from iris.local.stop import kill_cluster, wait_stopped
from rigging.errors import Conflict, Unavailable
from rigging.testing import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
def real(paths):
    yield lambda **options: LocalCluster(paths, **options)
    kill_cluster(paths)
    assert not is_locked(paths.worker_lock)


@contextlib.contextmanager
def taken_port(port: int) -> Iterator[None]:
    """Somebody else listens there, and hangs up on whoever comes."""
    with socket.create_server(("127.0.0.1", port)) as squatter:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    squatter.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield
        squatter.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_it_takes_jobs_when_it_is_ready_and_stops_when_told(real, paths):
    target = local_cluster(real())
    with IrisClient.of(target) as client:
        assert any(worker.connected for worker in client.cluster_status().workers)
        job = client.submit(Entrypoint.from_command("sleep", "600"), "sleeps", ResourceSpec(cpu=0.1))
        with pytest.raises(Conflict):
            client.stop_cluster()
        assert client.stop_cluster(stop_jobs=True) == [job.job_id]
    wait_stopped(paths)
    assert not paths.record.exists()
    assert real().find() is None


def test_it_leaves_by_itself_when_it_is_idle(real, paths):
    real(idle_exit_seconds=3).ensure()
    assert wait_unlocked(paths.controller_lock, timeout=20)
    assert wait_unlocked(paths.worker_lock, timeout=20)


def test_a_killed_controller_is_replaced_on_its_port_and_its_worker_is_kept(real, paths):
    first = real().ensure().record
    worker = int(paths.worker_lock.read_text())
    os.kill(first.pid, signal.SIGKILL)
    assert wait_unlocked(paths.controller_lock, timeout=10)
    second = real().ensure()
    assert second.started
    assert (second.record.address, second.record.pid != first.pid) == (first.address, True)
    assert int(paths.worker_lock.read_text()) == worker


def test_a_former_port_that_is_taken_now_is_given_up(real, paths):
    first = real().ensure().record
    os.kill(first.pid, signal.SIGKILL)
    assert wait_unlocked(paths.controller_lock, timeout=10)
    with taken_port(int(first.address.rpartition(":")[2])):
        second = real().ensure().record
    assert second.address != first.address


def test_a_killed_worker_is_replaced_and_its_task_never_noticed(real, paths, tmp_path):
    with IrisClient.of(local_cluster(real())) as client:
        go, marks = tmp_path / "go", tmp_path / "marks"
        os.mkfifo(go)
        command = f"echo started >> {marks}; echo before; read x < {go}; echo $x"
        job = client.submit(Entrypoint.from_command("sh", "-c", command), "once", ResourceSpec(cpu=0.1))
        eventually(lambda: marks.exists() and marks.read_text(), "the task started")
        first = int(paths.worker_lock.read_text())
        os.kill(first, signal.SIGKILL)
        eventually(lambda: paths.worker_lock.read_text().strip() not in ("", str(first)), "another worker comes")
        go.write_text("after\n")
        assert job.wait(timeout=60).state is JobState.SUCCEEDED
        assert marks.read_text() == "started\n"
        (task,) = client.list_tasks(job.job_id)
        assert (task.attempt, task.failures, task.preemptions) == (0, 0, 0)
        assert [line.text for line in client.read_logs(task.task_id)] == ["before", "after"]


def gone(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return True


def test_a_frozen_worker_is_ended_by_force_with_its_tasks_and_guardian(real, paths, tmp_path):
    with IrisClient.of(local_cluster(real())) as client:
        pids = tmp_path / "pids"
        command = f"env -i setsid sleep 600 & echo $! $$ > {pids}; exec sleep 600"
        client.submit(Entrypoint.from_command("sh", "-c", command), "stays", ResourceSpec(cpu=0.1))
        eventually(lambda: pids.exists() and pids.read_text(), "the task started")
    os.kill(int(paths.worker_lock.read_text()), signal.SIGSTOP)
    kill_cluster(paths)
    assert not is_locked(paths.worker_lock)
    assert not is_locked(paths.guardian_lock)
    assert all(map(gone, pids.read_text().split()))


def test_tasks_that_outlived_worker_and_guardian_are_ended_by_force(real, paths, tmp_path):
    with IrisClient.of(local_cluster(real())) as client:
        pids = tmp_path / "pids"
        command = f"env -i setsid sleep 600 & echo $! $$ > {pids}; exec sleep 600"
        client.submit(Entrypoint.from_command("sh", "-c", command), "stays", ResourceSpec(cpu=0.1))
        eventually(lambda: pids.exists() and pids.read_text(), "the task started")
    for lock in (paths.controller_lock, paths.worker_lock, paths.guardian_lock):
        os.kill(int(lock.read_text()), signal.SIGKILL)
    for lock in (paths.controller_lock, paths.worker_lock, paths.guardian_lock):
        assert wait_unlocked(lock, timeout=10)
    kill_cluster(paths)
    eventually(lambda: all(map(gone, pids.read_text().split())), "nothing is left of it")


def test_a_killed_guardian_is_replaced_and_the_interrupted_task_runs_again(real, paths, tmp_path):
    with IrisClient.of(local_cluster(real())) as client:
        marks = tmp_path / "marks"
        # The first attempt stays; the second one, on the next worker, finds its mark and ends.
        command = f"echo started >> {marks}; test $(wc -l < {marks}) -gt 1 || exec sleep 600"
        job = client.submit(Entrypoint.from_command("sh", "-c", command), "twice", ResourceSpec(cpu=0.1))
        eventually(lambda: marks.exists() and marks.read_text(), "the task started")
        os.kill(int(paths.guardian_lock.read_text()), signal.SIGKILL)
        assert job.wait(timeout=60).state is JobState.SUCCEEDED
        assert marks.read_text() == "started\nstarted\n"
        (task,) = client.list_tasks(job.job_id)
        assert (task.attempt, task.failures, task.preemptions) == (1, 0, 1)


def test_a_worker_that_cannot_start_is_told_and_starts_once_it_can(real, paths, monkeypatch, capfd):
    monkeypatch.setenv("IRIS_STATE_DIR", str(paths.root))
    paths.make()
    paths.worker_dir.write_text("in the way")
    with pytest.raises(Unavailable, match=rf"worker does not start: {paths.worker_dir}: File exists \(its log: "):
        real().ensure()
    assert iris(["cluster", "status"]) == 0
    assert f"worker:     does not start: {paths.worker_dir}: File exists" in capfd.readouterr().out
    assert iris(["job", "run", "--", "true"]) == 5
    assert f"worker does not start, and is tried again: {paths.worker_dir}: File exists" in capfd.readouterr().err
    with IrisClient.of(local_cluster(real())) as client:
        job = client.submit(Entrypoint.from_command("true"), "waits", ResourceSpec(cpu=0.1))
        eventually(lambda: job.status().pending_reason, "it waits")
        assert job.status().pending_reason.startswith("no worker is connected; a worker does not start: ")
        paths.worker_dir.unlink()
        assert job.wait(timeout=30).state is JobState.SUCCEEDED
        assert client.cluster_status().worker_trouble == ""
        client.stop_cluster()
    wait_stopped(paths)


def test_a_cluster_of_suspended_processes_is_stopped_by_force_at_once(real, paths, monkeypatch, capfd):
    monkeypatch.setenv("IRIS_STATE_DIR", str(paths.root))
    with IrisClient.of(local_cluster(real())) as client:
        client.submit(Entrypoint.from_command("sleep", "600"), "sleeps", ResourceSpec(cpu=0.1))
    frozen = [int(lock.read_text()) for lock in (paths.worker_lock, paths.controller_lock)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    eventually(lambda: all(" T " in Path(f"/proc/{pid}/stat").read_text() for pid in frozen), "they stand still")
    began = time.monotonic()
    assert iris(["cluster", "stop", "--force"]) == 0
    took, said = time.monotonic() - began, capfd.readouterr().err
    assert took < 10, "it took 11 to 51 s, and said nothing"
    for what in ("controller", "worker"):
        assert f"the local cluster's {what} (process " in said
        assert "was suspended and goes on, to end in order" in said
    assert "and 1 job stopped" in said


def test_a_damaged_record_of_a_running_cluster_is_written_again(real, paths):
    first = real().ensure().record
    for damage in (b"{", b"[]"):
        paths.record.write_bytes(damage)
        assert real().ensure().record == first, "it is found, and not waited for in vain"
