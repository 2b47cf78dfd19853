"""A worker that says that it cannot start anything gets nothing new, and those who wait are told why."""

from typing import Any

from iris.rpc import iris_pb2 as pb
from iris.rpc.auth import PrincipalKind
from iris.testing.controller import RunningController
from iris.testing.worker import ScriptedWorker
from rigging.testing import eventually


def test_it_gets_nothing_until_it_can_start_tasks_again(user: Any, controller: RunningController) -> None:
    def told() -> str:
        return user.cluster.Status(pb.ClusterStatusRequest()).workers[0].trouble

    with ScriptedWorker(controller.address, controller.token(PrincipalKind.WORKER, "w1")) as worker:
        worker.send(pb.WorkerMessage(beat=1, trouble="its guardian sleeps"))
        eventually(lambda: told() == "its guardian sleeps", "it is known")
        worker.send(pb.WorkerMessage(beat=2))
        user.submit("/ann/a", resources=pb.Resources(cpu_millis=1000))
        eventually(lambda: user.get("/ann/a").pending_reason, "it waits")
        assert user.get("/ann/a").pending_reason == "no worker takes work; w1: its guardian sleeps"
        worker.send(pb.WorkerMessage(beat=3, trouble=""))
        worker.wait_for_start("/ann/a/0:0")
        assert told() == ""
