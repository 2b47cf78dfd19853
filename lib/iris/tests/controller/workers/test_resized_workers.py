"""The disk of a worker fills and empties while it runs; jobs wait for room instead of being refused."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from iris.domain.constraints import DISK_SIZE_ATTRIBUTE, FENCE_ATTRIBUTE
from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.testing.controller import RunningController
from iris.testing.worker import ScriptedWorker
from rigging.testing import eventually

GIB = 2**30


def offering(disk_bytes: int) -> pb.Resources:
    return pb.Resources(cpu_millis=2000, memory_bytes=8 * GIB, disk_bytes=disk_bytes)


@pytest.fixture
def small(controller: RunningController) -> Iterator[ScriptedWorker]:
    """A worker with 100 GiB of disk, of which 2 GiB are free."""
    token = controller.token(PrincipalKind.WORKER, "w1")
    attributes = {FENCE_ATTRIBUTE: "true", DISK_SIZE_ATTRIBUTE: str(100 * GIB)}
    with ScriptedWorker(controller.address, token, capacity=offering(2 * GIB), attributes=attributes) as worker:
        yield worker


def test_a_job_waits_until_room_is_made(user: Any, small: ScriptedWorker) -> None:
    user.submit("/ann/a", resources=pb.Resources(cpu_millis=1000, disk_bytes=5 * GIB))
    eventually(lambda: user.get("/ann/a").pending_reason, "it waits")
    assert user.get("/ann/a").pending_reason == (
        "needs 5 GiB of disk; worker w1 has 2 GiB of 2 GiB free: ask for less with --disk or ResourceSpec(disk=...), "
        "0 for none, or make room there"
    )
    small.send(pb.WorkerMessage(beat=1, capacity=offering(50 * GIB)))
    small.wait_for_start("/ann/a/0:0")


def test_nothing_is_placed_where_the_room_is_gone(user: Any, small: ScriptedWorker) -> None:
    small.send(pb.WorkerMessage(beat=1, capacity=offering(0)))
    eventually(
        lambda: user.cluster.Status(pb.ClusterStatusRequest()).workers[0].capacity.disk_bytes == 0, "it is known"
    )
    user.submit("/ann/a", resources=pb.Resources(cpu_millis=1000, disk_bytes=GIB))
    user.submit("/ann/b", resources=pb.Resources(cpu_millis=1000))
    small.wait_for_start("/ann/b/0:0")
    assert "needs 1 GiB of disk; worker w1 has 0 B of 0 B free" in user.get("/ann/a").pending_reason


def test_more_than_the_whole_disk_is_refused(user: Any, small: ScriptedWorker) -> None:
    with pytest.raises(grpc.RpcError, match=r"needs 101 GiB of disk; the largest worker \(w1\) has 100 GiB"):
        user.submit("/ann/a", resources=pb.Resources(cpu_millis=1000, disk_bytes=101 * GIB))
