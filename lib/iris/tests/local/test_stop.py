import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fray.testing.waiting import eventually
from iris.local.state import LocalPaths
from iris.local.stop import kill_cluster, stop_worker, wait_stopped, wake
from iris.worker.strays import leftovers
from rigging.errors import Unavailable

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def paths(tmp_path: Path) -> LocalPaths:
    (tmp_path / "worker").mkdir()
    return LocalPaths(tmp_path)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that holds a lock and ends by SIGTERM, unless it is to be stubborn."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(lock: Path, name: str = "iris.local.daemon", stubborn: bool = False) -> subprocess.Popen[bytes]:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        script = f"{'trap : TERM; ' if stubborn else ''}echo; while :; do read x; done"
        process = subprocess.Popen(
            ["sh", "-c", script, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(descriptor,)
        )
        started.append(process)
        os.write(descriptor, f"{process.pid}\n".encode())
        os.close(descriptor)  # from now on the lock is the process's
        assert process.stdout is not None
        process.stdout.read(1)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def suspend(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


@pytest.mark.parametrize("kind", ["controller", "worker", "guardian"])
def test_each_process_is_waited_for_and_named_when_it_takes_long(paths: LocalPaths, start: Start, kind: str) -> None:
    told: list[str] = []
    wait_stopped(paths, on_wait=told.append)
    assert not told
    process = start(getattr(paths, f"{kind}_lock"))
    with pytest.raises(Unavailable, match=rf"\(process {process.pid}\) did not exit within 0.05 s; .*--force"):
        wait_stopped(paths, timeout=0.05, quiet=0.02, on_wait=told.append)
    assert len(told) == 1
    assert told[0].endswith(f"(process {process.pid}) to end")
    process.kill()
    wait_stopped(paths, timeout=20.0)


def test_what_was_suspended_is_named_and_goes_on(paths: LocalPaths, start: Start) -> None:
    """A suspended process would hear of the stop only after the patience with it had ended."""
    controller, worker = start(paths.controller_lock), start(paths.worker_lock)
    suspend(worker)
    assert wake(paths) == [f"worker (process {worker.pid})"]
    assert os.waitid(os.P_PID, worker.pid, os.WCONTINUED) is not None
    assert wake(paths) == []
    assert controller.poll() is None


def test_all_is_ended_also_what_was_suspended(paths: LocalPaths, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[Path] = []
    monkeypatch.setattr(leftovers, "end_leftovers", cleaned.append)
    processes = [
        start(paths.controller_lock), start(paths.worker_lock), start(paths.guardian_lock, "iris.worker.guardian")
    ]  # fmt: skip
    suspend(processes[0])
    assert kill_cluster(paths, 60.0) == [process.pid for process in processes]
    assert [process.wait(20) for process in processes] == [-signal.SIGTERM] * 3
    assert cleaned == [paths.worker_dir], "tasks that outlive their guardian"
    assert kill_cluster(paths) == []


def test_one_that_does_not_end_in_order_is_killed_and_one_that_has_ended_sent_nothing_more(
    paths: LocalPaths, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start(paths.worker_lock, stubborn=True)
    assert kill_cluster(paths, 0.1) == [worker.pid]
    assert worker.wait(20) == -signal.SIGKILL
    sent: list[tuple[int, int]] = []  # of one that has ended the number may be another process's by then
    worker, kill = start(paths.worker_lock), os.kill
    monkeypatch.setattr(os, "kill", lambda pid, number: (sent.append((pid, number)), kill(pid, number)))
    assert stop_worker(paths)
    assert sent == [(worker.pid, signal.SIGTERM), (worker.pid, signal.SIGCONT)]


def test_only_the_worker_and_what_it_runs_is_ended_with_it(paths: LocalPaths, start: Start) -> None:
    assert not stop_worker(paths)
    controller, guardian = start(paths.controller_lock), start(paths.guardian_lock)
    assert stop_worker(paths)
    assert guardian.wait(20) == -signal.SIGTERM
    worker = start(paths.worker_lock)
    assert stop_worker(paths)
    assert worker.wait(20) == -signal.SIGTERM
    assert controller.poll() is None


def test_a_pid_that_the_system_gave_to_somebody_else_is_left_alone(paths: LocalPaths, start: Start) -> None:
    other = start(paths.controller_lock, "somebody.else")
    suspend(other)
    assert wake(paths) == []
    assert kill_cluster(paths) == []
    stat = Path(f"/proc/{other.pid}/stat")
    eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is suspended as it was", timeout=5)


def test_leftovers_are_the_living_guardians(paths: LocalPaths, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[Path] = []
    monkeypatch.setattr(leftovers, "end_leftovers", cleaned.append)
    start(paths.guardian_lock, "somebody.else")
    kill_cluster(paths)
    paths.guardian_lock.unlink()
    paths.worker_dir.rmdir()
    kill_cluster(paths)
    assert not cleaned, "there is no worker's directory"


@pytest.mark.parametrize("kind", ["worker", "host"])
def test_a_worker_that_has_no_lock_yet_does_not_outlive_its_cluster(paths: LocalPaths, kind: str) -> None:
    """Its controller was killed while it began."""
    command = [sys.executable, "-c", "input()", "-m", "iris.local.daemon", kind, "--state-dir"]
    own, others = (
        subprocess.Popen([*command, str(place), "--name", "h"], stdin=subprocess.PIPE)
        for place in (paths.root, paths.root / "other")
    )
    try:
        for process in (own, others):  # a process has no command line yet when its exec has just succeeded
            eventually(Path(f"/proc/{process.pid}/cmdline").read_bytes, "it has a command line")
        assert kill_cluster(paths) == [own.pid]
        assert own.wait(10) == -signal.SIGKILL
        assert others.poll() is None, "another cluster's"
    finally:
        for process in (own, others):
            process.kill()
            process.communicate()
