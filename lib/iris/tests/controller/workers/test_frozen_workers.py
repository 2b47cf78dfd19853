"""Real worker processes that are frozen: nobody's job waits for them."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fray.testing.waiting import eventually
from iris.rpc import iris_pb2 as pb
from support.iris.controller import RunningController, running_controller
from support.iris.worker_process import WorkerProcess

pytestmark = pytest.mark.process


@pytest.fixture
def join(tmp_path: Path, controller: RunningController) -> Iterator[Callable[[str], WorkerProcess]]:
    """Starts a worker process and waits until it is connected."""
    workers: list[WorkerProcess] = []

    def start(name: str) -> WorkerProcess:
        seen = controller.workers_seen.count(name)
        worker = WorkerProcess(tmp_path / name, name, controller.address, controller.worker_token(name))
        workers.append(worker)
        eventually(lambda: controller.workers_seen.count(name) > seen, f"{name} is connected")
        return worker

    yield start
    for worker in workers:
        if worker.is_alive:
            worker.stop()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    quick = {"heartbeat_interval_s": 0.3, "worker_timeout_s": 1.5, "fence_margin_s": 2}
    with running_controller(tmp_path / "state", **quick) as running:
        yield running


@pytest.mark.parametrize("silent", ["frozen", "killed"])
def test_what_moved_is_stopped_when_its_worker_is_back(join: Any, user: Any, tmp_path: Path, silent: str) -> None:
    worker = join("w1")
    begin(user, tmp_path, "exec sleep 60")
    worker.freeze() if silent == "frozen" else worker.kill()
    join("w2")
    eventually(lambda: len(pids(tmp_path)) == 2, "the second attempt runs")
    assert len(living(tmp_path)) == 2, "its guardian goes on: it is not exclusive"
    assert user.task("/ann/a/0").causes[0] == "attempt 0 on w1: worker w1 was not heard for 1.5 s"
    worker.thaw() if silent == "frozen" else join("w1")
    eventually(lambda: len(living(tmp_path)) == 1, "the first attempt is stopped", instead=lambda: living(tmp_path))
    assert living(tmp_path) == pids(tmp_path)[1:]
    eventually(lambda: not user.task("/ann/a/0").silent, "nothing is out of reach")


def test_an_exclusive_attempt_has_ended_before_the_next_one_begins(join: Any, user: Any, tmp_path: Path) -> None:
    worker = join("w1")
    begin(user, tmp_path, "exec sleep 60", exclusive=True, fence_after_ms=3000)
    worker.freeze()
    join("w2")
    eventually(lambda: not living(tmp_path), "the guardian ends it, though its worker is frozen")
    eventually(lambda: len(pids(tmp_path)) == 2, "the second attempt runs")
    task = user.task("/ann/a/0")
    assert (task.attempt, task.worker_id, task.failures) == (1, "w2", 0)
    (silence_s,) = re.findall(r"had no contact for ([\d.]+) s", task.causes[0])
    assert float(silence_s) >= 3 + 2, "it was given up before it was fenced, or without the margin"
    worker.thaw()
    eventually(lambda: worker_is_heard(user), "the first worker is back")
    assert len(living(tmp_path)) == 1


def test_what_was_given_up_and_has_no_successor_goes_on(join: Any, user: Any, tmp_path: Path) -> None:
    worker = join("w1")
    begin(user, tmp_path, "trap '' TERM; for i in $(seq 600); do sleep 0.05; done")
    worker.freeze()
    # Given up, and its task waits for another worker: only this one comes.
    eventually(lambda: user.task("/ann/a/0").state != pb.TASK_STATE_RUNNING, "its worker is lost")
    worker.thaw()
    eventually(lambda: user.task("/ann/a/0").state == pb.TASK_STATE_RUNNING, "it has its task back")
    assert (user.task("/ann/a/0").attempt, living(tmp_path)) == (0, pids(tmp_path))
    assert len(pids(tmp_path)) == 1


def begin(user: Any, directory: Path, then: str, **spec: Any) -> None:
    """Run a job whose attempts note their pids."""
    script = f"exec 9>>{directory}/lock; flock -n 9 || exit 9; echo $$ >> {directory}/pids; {then}"
    script = script if spec else f"echo $$ >> {directory}/pids; {then}"
    user.submit("/ann/a", cpu_millis=100, memory_bytes=1 << 20, argv=("sh", "-c", script), **spec)
    eventually(lambda: user.get("/ann/a").state == pb.JOB_STATE_RUNNING and pids(directory), "the first attempt runs")


def pids(directory: Path) -> list[int]:
    """What the attempts wrote of themselves, in the order in which they began."""
    found = directory / "pids"
    return [int(line) for line in found.read_text().split()] if found.exists() else []


def living(directory: Path) -> list[int]:
    return [pid for pid in pids(directory) if runs(pid)]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return False


def worker_is_heard(user: Any) -> bool:
    workers = user.cluster.Status(pb.ClusterStatusRequest(all_workers=True)).workers
    return all(worker.connected and not worker.is_late for worker in workers)
