"""A worker that says that it cannot start anything gets nothing new, and those who wait are told why."""

from typing import Any

from iris.client.connection.wire import silent_attempt
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


def test_what_cannot_be_stopped_there_is_named_with_the_reason(user: Any, controller: RunningController) -> None:
    attempt = "/ann/a/0:0"
    with ScriptedWorker(controller.address, controller.token(PrincipalKind.WORKER, "w1")) as worker:
        user.submit("/ann/a", resources=pb.Resources(cpu_millis=1000))
        worker.wait_for_start(attempt)
        worker.observe(attempt, pb.TASK_STATE_RUNNING)
        eventually(lambda: user.get("/ann/a").state == pb.JOB_STATE_RUNNING, "it runs")
        assert not user.task("/ann/a/0").silent
        assert not user.stop("/ann/a").silent, "nothing is known yet"
        worker.send(pb.WorkerMessage(beat=1, trouble="its guardian sleeps"))
        eventually(lambda: user.task("/ann/a/0").silent, "it is known")
        (named,) = user.task("/ann/a/0").silent
        assert (named.attempt_id, named.trouble, named.is_wanted) == (attempt, "its guardian sleeps", False)
        assert str(silent_attempt(named)) == (
            "attempt 0 of /ann/a/0 on worker w1 (its guardian sleeps) will be stopped when its host can do so"
        )
        worker.send(pb.WorkerMessage(beat=2, trouble=""))
        worker.observe(attempt, pb.TASK_STATE_KILLED)
        eventually(lambda: not user.task("/ann/a/0").silent, "it is gone")
