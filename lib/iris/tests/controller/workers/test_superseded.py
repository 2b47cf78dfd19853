"""Attempts whose task went elsewhere while their worker was away end as soon as it is back."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.rpc import iris_pb2 as pb
from iris.testing.controller import RunningController, running_controller
from iris.testing.worker_process import WorkerProcess
from rigging.testing import eventually

pytestmark = pytest.mark.e2e

Join = Callable[[str], WorkerProcess]
# No pid in the log: what a frozen worker's task writes is not shipped.
SCRIPT = "echo $$ >> {marks}; trap 'exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    with running_controller(tmp_path / "state", heartbeat_interval_s=0.3, worker_timeout_s=1.5) as running:
        yield running


@pytest.fixture
def join(tmp_path: Path, controller: RunningController) -> Iterator[Join]:
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


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return False


def started(marks: Path, count: int) -> list[str]:
    eventually(lambda: marks.exists() and len(marks.read_text().split()) >= count, f"attempt {count - 1} has started")
    return marks.read_text().split()


def submit(user: Any, marks: Path) -> None:
    script = SCRIPT.format(marks=marks)
    user.submit("/ann/job", cpu_millis=100, memory_bytes=1 << 20, argv=("sh", "-c", script))


def test_a_thawed_worker_stops_what_runs_elsewhere_by_now(join: Join, user: Any, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    first = join("w1")
    submit(user, marks)
    (old,) = started(marks, 1)
    first.freeze()
    try:
        join("w2")
        _, new = started(marks, 2)
        assert runs(old), "its guardian goes on: it is not exclusive"
    finally:
        first.thaw()
    eventually(lambda: not runs(old), "the superseded attempt is stopped", timeout=10)
    assert runs(new)
    task = user.task("/ann/job/0")
    assert (task.attempt, task.worker_id) == (1, "w2")


def test_a_worker_that_comes_back_takes_up_and_stops_what_runs_elsewhere_by_now(
    join: Join, user: Any, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    first = join("w1")
    submit(user, marks)
    (old,) = started(marks, 1)
    first.kill()
    join("w2")
    _, new = started(marks, 2)
    assert runs(old)
    join("w1")
    eventually(lambda: not runs(old), "the superseded attempt is stopped", timeout=10)
    assert runs(new)


def test_no_second_attempt_runs_beside_the_first_on_one_host(join: Join, user: Any, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    script = f"echo $$ >> {marks}; trap '' TERM; for i in $(seq 600); do sleep 0.05; done"
    first = join("w1")
    user.submit("/ann/job", cpu_millis=100, memory_bytes=1 << 20, argv=("sh", "-c", script))
    (old,) = started(marks, 1)
    eventually(lambda: user.task("/ann/job/0").state == pb.TASK_STATE_RUNNING, "the controller knows that it runs")
    first.freeze()
    # Given up, and its task waits for another worker: only this one comes.
    eventually(lambda: user.task("/ann/job/0").state != pb.TASK_STATE_RUNNING, "its worker is lost")
    first.thaw()
    pids = started(marks, 2)
    assert pids[0] == old
    assert not runs(old), "the first attempt was dead before the second began"
