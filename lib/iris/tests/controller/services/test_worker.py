"""Workers over real gRPC: they come, go, come back and are silent; what they are told, and what people see."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.controller.services.convert_worker import clock_shift
from iris.controller.services.worker import address_of, check_worker_id
from iris.domain.constraints import DISK_SIZE_ATTRIBUTE
from iris.rpc.auth import PrincipalKind
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest
from support.iris.controller import RunningController, running_controller
from support.iris.worker import ScriptedWorker

SUCCEEDED, RUNNING = pb.TASK_STATE_SUCCEEDED, pb.TASK_STATE_RUNNING
FAST = {"heartbeat_interval_s": 0.05, "worker_timeout_s": 0.4}
GIB = 2**30
HOUR_MS = 3_600_000


def worker_of(controller: RunningController, **settings: Any) -> ScriptedWorker:
    return ScriptedWorker(controller.address, controller.worker_token("w1"), **settings)


def test_what_only_a_worker_lost_lately_could_run_is_accepted_and_waits_for_it(tmp_path: Path, connect: Any) -> None:
    with running_controller(tmp_path / "state", **FAST) as controller:
        user = connect(controller)
        large = pb.Resources(cpu_millis=64_000, memory_bytes=8 * 2**30, disk_bytes=100 * 2**30)
        with worker_of(controller, capacity=large) as worker:
            user.submit("/ann/a")
            worker.wait_for_start("/ann/a/0:0")
        with ScriptedWorker(controller.address, controller.worker_token("w2"), "w2") as small:

            def retried() -> bool:
                small.send(pb.WorkerMessage())  # a heartbeat
                return any(start.attempt_id == "/ann/a/0:1" for start in small.starts)

            small.wait(retried, "the retry: w1 is lost")
            user.submit("/ann/b", cpu_millis=64_000)
            with pytest.raises(grpc.RpcError, match=r"can never run: needs 65 cores; the largest worker \(w1\) has 64"):
                user.submit("/ann/c", cpu_millis=65_000)
            with worker_of(controller, capacity=large, instance_id="second") as again:
                again.wait_for_start("/ann/b/0:0")


@pytest.mark.parametrize(
    ("settings", "code", "reason"),
    [
        ({"protocol_version": 99}, "FAILED_PRECONDITION", "speaks protocol version 99, this controller 3"),
        ({"worker_id": "w2"}, "PERMISSION_DENIED", "may not open sessions as 'w2': each may only speak for itself"),
        ({"instance_id": ""}, "INVALID_ARGUMENT", "gives no instance_id"),
    ],
)
def test_a_wrong_hello_is_told(controller: RunningController, settings: dict[str, Any], code: str, reason: str) -> None:
    with worker_of(controller, **settings) as worker:
        worker.wait_for_end()
    assert worker.error is not None
    assert (worker.error.code().name, reason in worker.error.details()) == (code, True)


def test_a_worker_has_an_id_that_a_header_can_carry(controller: RunningController) -> None:
    for good in ("rack 4/host_1 $(x)", "w" * 256):
        check_worker_id(good)
    for name in ("", "höst", "a\nb", "\u200b", "w" * 257):
        with pytest.raises(InvalidRequest, match="is not a worker id: no control characters, and 1 to 256"):
            check_worker_id(name)
    with ScriptedWorker(controller.address, controller.worker_token("w" * 257), "w" * 257) as worker:
        worker.wait_for_end()
    assert "is not a worker id" in str(worker.error)


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:10.0.0.2:53012", "10.0.0.2"), ("ipv6:%5B::1%5D:53012", "::1"), ("unix:", "unix"), ("unix:/a:b", "unix")],
)
def test_the_address_of_a_caller_is_read_from_grpcs_name(peer: str, address: str) -> None:
    assert address_of(peer) == address


def test_both_sides_are_heard_and_an_orderly_stop_sends_workers_away_without_ending_them(tmp_path: Path) -> None:
    with running_controller(tmp_path / "state", **FAST) as controller, worker_of(controller) as worker:
        assert worker.welcome is not None
        assert worker.welcome.heartbeat_interval_ms == 50
        worker.wait(lambda: worker.heartbeats >= 2, "two heartbeats")
        worker.beat(7)  # until when the host may keep exclusive attempts, it knows by the acknowledgement
        worker.wait_for_beat_ack(7)
        controller.stop()
        worker.wait_for_end()
        assert worker.goodbye is not None
        assert not worker.goodbye.exit


def test_one_that_leaves_gets_nothing_new_and_its_last_reports_count(controller: RunningController, user: Any) -> None:
    """Once, its ended attempts were placed on it again, and it did not get away."""
    with worker_of(controller) as worker:
        user.submit("/ann/a")
        worker.wait_for_start("/ann/a/0:0")
        worker.send(pb.WorkerMessage(leaving=True))
        worker.observe("/ann/a/0:0", pb.TASK_STATE_WORKER_FAILED, failure=pb.FAILURE_KIND_PREEMPTED, error="leaves")
        worker.wait_for_forget("/ann/a/0:0")
        user.submit("/ann/b")
        assert user.get("/ann/a").state == pb.JOB_STATE_PENDING
        assert user.get("/ann/b").pending_reason
        assert [start.attempt_id for start in worker.starts] == ["/ann/a/0:0"]
    with worker_of(controller, instance_id="second") as worker:
        worker.wait_for_start("/ann/a/0:1")


def test_a_start_says_when_its_fence_ends_it(controller: RunningController, user: Any, worker: ScriptedWorker) -> None:
    user.submit("/ann/plain")
    user.submit("/ann/default", exclusive=True, cpu_millis=100)
    user.submit("/ann/short", exclusive=True, fence_after_ms=20_000, cpu_millis=100)
    fences = {}
    for name in ("plain", "default", "short"):
        launch = worker.wait_for_start(f"/ann/{name}/0:0").launch
        fences[name] = (launch.exclusive, launch.fence_after_ms)
    assert fences == {"plain": (False, 0), "default": (True, 600_000), "short": (True, 20_000)}


def test_a_job_may_name_its_worker(user: Any, worker: ScriptedWorker) -> None:
    def named(name: str) -> list[pb.Constraint]:
        return [pb.Constraint(key="worker-name", op=pb.CONSTRAINT_OP_EQ, values=[name])]

    with pytest.raises(grpc.RpcError, match="no worker has worker-name = w9; workers have w1"):
        user.submit("/ann/a", constraints=named("w9"))
    user.submit("/ann/b", constraints=named("w1"))
    worker.wait_for_start("/ann/b/0:0")


def offering(disk_bytes: int) -> pb.Resources:
    return pb.Resources(cpu_millis=2000, memory_bytes=8 * GIB, disk_bytes=disk_bytes)


@pytest.fixture
def small(controller: RunningController) -> Iterator[ScriptedWorker]:
    """A worker with 100 GiB of disk, of which 2 GiB are free."""
    token = controller.token(PrincipalKind.WORKER, "w1")
    attributes = {DISK_SIZE_ATTRIBUTE: str(100 * GIB)}
    with ScriptedWorker(controller.address, token, capacity=offering(2 * GIB), attributes=attributes) as worker:
        yield worker


def test_a_job_waits_for_room_and_one_for_more_than_the_disk_is_refused(user: Any, small: ScriptedWorker) -> None:
    with pytest.raises(grpc.RpcError, match=r"needs 101 GiB of disk; the largest worker \(w1\) has 100 GiB"):
        user.submit("/ann/b", resources=pb.Resources(cpu_millis=1000, disk_bytes=101 * GIB))
    user.submit("/ann/a", resources=pb.Resources(cpu_millis=1000, disk_bytes=5 * GIB))
    eventually(lambda: user.get("/ann/a").pending_reason, "it waits")
    assert user.get("/ann/a").pending_reason == (
        "needs 5 GiB of disk; worker w1 has 2 GiB of 2 GiB free: ask for less with --disk or ResourceSpec(disk=...), "
        "0 for none, or make room there"
    )
    small.send(pb.WorkerMessage(beat=1, capacity=offering(0)))
    eventually(lambda: "has 0 B of 0 B free" in user.get("/ann/a").pending_reason, "the room is gone")
    user.submit("/ann/b", resources=pb.Resources(cpu_millis=1000))
    small.wait_for_start("/ann/b/0:0")
    small.send(pb.WorkerMessage(beat=2, capacity=offering(50 * GIB)))
    small.wait_for_start("/ann/a/0:0")


def test_it_gets_nothing_until_it_can_start_tasks_again(user: Any, controller: RunningController) -> None:
    def told() -> str:
        return user.cluster.Status(pb.ClusterStatusRequest()).workers[0].trouble

    attempt = "/ann/old/0:0"
    with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
        user.submit("/ann/old")
        worker.wait_for_start(attempt)
        worker.observe(attempt, pb.TASK_STATE_RUNNING)
        eventually(lambda: user.get("/ann/old").state == pb.JOB_STATE_RUNNING, "it runs")
        worker.send(pb.WorkerMessage(beat=1, trouble="its guardian sleeps"))
        eventually(lambda: told() == "its guardian sleeps", "it is known")
        (named,) = user.stop("/ann/old").silent
        assert (named.attempt_id, named.trouble, named.is_wanted) == (attempt, "its guardian sleeps", False)
        assert [found.attempt_id for found in user.task("/ann/old/0").silent] == [attempt]
        worker.send(pb.WorkerMessage(beat=2))
        user.submit("/ann/new")
        eventually(lambda: user.get("/ann/new").pending_reason, "it waits")
        assert user.get("/ann/new").pending_reason == "no worker takes work; w1: its guardian sleeps"
        worker.send(pb.WorkerMessage(beat=3, trouble=""))
        worker.wait_for_start("/ann/new/0:0")
        assert told() == ""


@pytest.mark.parametrize("skew_ms", [0, HOUR_MS, -HOUR_MS])
def test_an_end_that_is_told_late_was_when_it_was(user: Any, worker: ScriptedWorker, skew_ms: int) -> None:
    user.submit("/ann/a")
    worker.wait_for_start("/ann/a/0:0")
    # What it saw lies after the submission.
    eventually(lambda: time.time() * 1000 > user.get("/ann/a").submitted_at_ms + 200, "some time has passed")
    now = int(time.time() * 1000)
    end = pb.Observation(
        attempt_id="/ann/a/0:0",
        state=pb.TASK_STATE_FAILED,
        exit_code=3,
        started_at_ms=now + skew_ms - 200,
        at_ms=now + skew_ms - 150,
    )
    worker.send(pb.WorkerMessage(observations=[end], sent_at_ms=now + skew_ms))
    job, task = user.wait_one("/ann/a"), user.task("/ann/a/0")
    assert task.finished_at_ms - task.started_at_ms == 50
    assert (job.started_at_ms, job.finished_at_ms) == (task.started_at_ms, task.finished_at_ms)
    assert -20 <= job.finished_at_ms - (now - 150) < 5_000, "it is later by the time that the message took"


def test_a_shift_is_only_known_of_those_who_say_when_they_spoke() -> None:
    assert clock_shift(0, 1_000) == 0
    assert clock_shift(400, 1_000) == 600
    assert clock_shift(1_400, 1_000) == -400
