"""Real worker processes that are frozen: nobody's job waits for them."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iris.rpc import iris_pb2 as pb
from iris.testing.controller import RunningController, running_controller
from iris.testing.worker_process import WorkerProcess
from rigging.testing import eventually

pytestmark = pytest.mark.e2e

HEARTBEAT_S = 0.5


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    with running_controller(tmp_path / "state", heartbeat_interval_s=HEARTBEAT_S, worker_timeout_s=60) as running:
        yield running


@pytest.fixture
def join(tmp_path: Path, controller: RunningController) -> Iterator[Callable[[str], WorkerProcess]]:
    """Starts a worker process and waits until it is connected."""
    workers: list[WorkerProcess] = []

    def start(name: str) -> WorkerProcess:
        worker = WorkerProcess(tmp_path / name, name, controller.address, controller.worker_token(name))
        workers.append(worker)
        eventually(lambda: name in controller.workers_seen, f"{name} is connected")
        return worker

    yield start
    for worker in workers:
        worker.stop()


def run_twenty(user: Any, name: str) -> tuple[list[pb.TaskStatus], float]:
    """Run 20 jobs; return their tasks, and how long the slowest took in seconds."""
    names = [f"/ann/{name}-{number}" for number in range(20)]
    for job in names:
        user.submit(job, cpu_millis=100, memory_bytes=1 << 20, argv=("true",))
    answer = user.wait(*names, timeout_ms=60_000)
    assert answer.done
    assert {status.state for status in answer.jobs} == {pb.JOB_STATE_SUCCEEDED}
    longest = max(status.finished_at_ms - status.submitted_at_ms for status in answer.jobs) / 1000
    return [user.task(f"{job}/0") for job in names], longest


def test_no_job_waits_long_for_a_frozen_worker(join: Any, user: Any) -> None:
    """20 jobs, two workers, one of them frozen: the half that is assigned to it goes elsewhere."""
    frozen, _ = join("w1"), join("w2")
    # What they take without that: the machine may be busy with other tests.
    _, usual = run_twenty(user, "before")
    frozen.freeze()
    try:
        tasks, longest = run_twenty(user, "job")
    finally:
        frozen.thaw()
    assert longest < usual + 10 * HEARTBEAT_S, f"one took {longest:.1f} s, {usual:.1f} s before"
    moved = [task for task in tasks if task.attempt]
    assert moved, "none was assigned to the frozen worker"
    assert all("never acknowledged" in task.causes[0] for task in moved)
    assert sum(task.preemptions + task.failures for task in tasks) == 0, "somebody was charged"


def test_a_thawed_worker_is_used_again_and_what_it_should_not_run_is_stopped(
    join: Any, user: Any, tmp_path: Path
) -> None:
    worker = join("w1")
    worker.freeze()
    marks = tmp_path / "marks"
    user.submit("/ann/late", cpu_millis=100, argv=("sh", "-c", f"echo $$ >> {marks}; exec sleep 60"))
    eventually(lambda: "not heard for two heartbeats: w1" in user.get("/ann/late").pending_reason, "w1 is late")
    worker.thaw()
    eventually(lambda: user.get("/ann/late").state == pb.JOB_STATE_RUNNING, "it runs")
    assert user.task("/ann/late/0").attempt >= 1

    def living() -> list[int]:
        return [int(line) for line in marks.read_text().split() if Path(f"/proc/{line}").exists()]

    eventually(lambda: len(living()) == 1, "only the last attempt lives", instead=living)
    user.stop("/ann/late")
    assert user.wait_one("/ann/late").state == pb.JOB_STATE_KILLED
    assert not living()


class TestGivenUp:
    """Workers that stay frozen until they are lost, on hosts whose guardians go on."""

    @pytest.fixture
    def controller(self, tmp_path: Path) -> Iterator[RunningController]:
        quick = {"heartbeat_interval_s": 0.5, "worker_timeout_s": 2, "fence_margin_s": 2}
        with running_controller(tmp_path / "state", **quick) as running:
            yield running

    def test_what_was_superseded_is_stopped_when_the_worker_thaws(self, join: Any, user: Any, tmp_path: Path) -> None:
        worker = join("w1")
        user.submit("/ann/a", cpu_millis=100, argv=("sh", "-c", f"echo $$ >> {tmp_path}/pids; exec sleep 60"))
        eventually((tmp_path / "pids").exists, "the first attempt runs")
        eventually(lambda: user.get("/ann/a").state == pb.JOB_STATE_RUNNING, "the controller knows")
        worker.freeze()
        join("w2")
        eventually(lambda: len(pids(tmp_path)) == 2, "the second attempt runs")
        assert user.task("/ann/a/0").causes[0] == "attempt 0 on w1: worker w1 was not heard for 2 s"
        (lost,) = user.task("/ann/a/0").silent
        assert lost.attempt_id == "/ann/a/0:0"
        worker.thaw()
        eventually(lambda: len(living(tmp_path)) == 1, "the first attempt is stopped", instead=lambda: living(tmp_path))
        assert living(tmp_path) == pids(tmp_path)[1:]
        eventually(lambda: not user.task("/ann/a/0").silent, "nothing is out of reach")

    def test_an_exclusive_attempt_has_ended_before_the_next_one_begins(
        self, join: Any, user: Any, tmp_path: Path
    ) -> None:
        worker = join("w1")
        script = f"exec 9>>{tmp_path}/lock; flock -n 9 || exit 9; echo $$ >> {tmp_path}/pids; exec sleep 60"
        user.submit("/ann/a", cpu_millis=100, argv=("sh", "-c", script), exclusive=True, fence_after_ms=3000)
        eventually((tmp_path / "pids").exists, "the first attempt runs")
        eventually(lambda: user.get("/ann/a").state == pb.JOB_STATE_RUNNING, "the controller knows")
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


def pids(directory: Path) -> list[int]:
    """What the attempts wrote of themselves, in the order in which they began."""
    return [int(line) for line in (directory / "pids").read_text().split()]


def living(directory: Path) -> list[int]:
    return [pid for pid in pids(directory) if Path(f"/proc/{pid}").exists()]


def worker_is_heard(user: Any) -> bool:
    workers = user.cluster.Status(pb.ClusterStatusRequest(all_workers=True)).workers
    return all(worker.connected and not worker.is_late for worker in workers)
