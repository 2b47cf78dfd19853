"""What operators can do about workers that are out of reach, and which of them exclusive jobs may go to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fray.testing.waiting import eventually
from iris.rpc.generated import iris_pb2 as pb
from support.iris.controller import RunningController, running_controller
from support.iris.worker import ScriptedWorker

RUNNING, KILLED = pb.TASK_STATE_RUNNING, pb.TASK_STATE_KILLED
A = "/ann/a/0:0"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunningController]:
    quick = {"heartbeat_interval_s": 0.1, "worker_timeout_s": 1.0, "fence_margin_s": 0.1}
    with running_controller(tmp_path / "state", **quick) as running:
        yield running


@pytest.fixture
def cluster(admin: Any) -> Any:
    """The calls of an operator."""
    return admin.stubs.cluster


def run_and_leave(controller: RunningController, user: Any, **spec: Any) -> None:
    """A job runs on w1, which goes without a word."""
    with ScriptedWorker(controller.address, controller.worker_token("w1")) as worker:
        user.submit("/ann/a", **spec)
        worker.wait_for_start(A)
        worker.observe(A, RUNNING)
        eventually(lambda: user.get("/ann/a").state == pb.JOB_STATE_RUNNING, "it runs")


def test_a_removed_worker_is_waited_for_no_more(controller: RunningController, user: Any, cluster: Any) -> None:
    run_and_leave(controller, user, exclusive=True)
    with ScriptedWorker(controller.address, controller.worker_token("w2"), "w2") as other:
        answer = cluster.RemoveWorker(pb.RemoveWorkerRequest(worker_id="w1", reason="its machine burnt"))
        assert answer.lost_attempt_ids == [A]
        other.wait_for_start("/ann/a/0:1")
        assert user.task("/ann/a/0").causes[0] == "attempt 0 on w1: worker w1 was removed: its machine burnt"
        workers = cluster.Status(pb.ClusterStatusRequest(all_workers=True)).workers
        assert [worker.worker_id for worker in workers] == ["w2"]
    left = pb.Observation(attempt_id=A, state=RUNNING)
    with ScriptedWorker(controller.address, controller.worker_token("w1"), inventory=[left]) as worker:
        worker.wait_for_stop(A)  # it lives after all


@pytest.mark.parametrize(
    ("worker_id", "reason", "code", "words"),
    [
        ("w1", "gone", grpc.StatusCode.FAILED_PRECONDITION, "worker w1 is connected, so its host is not gone"),
        ("w9", "gone", grpc.StatusCode.NOT_FOUND, "worker w9 does not exist"),
        ("w1", "", grpc.StatusCode.INVALID_ARGUMENT, "worker w1 cannot be removed without a reason"),
    ],
)
def test_a_removal_that_cannot_be_is_refused(
    controller: RunningController, cluster: Any, worker_id: str, reason: str, code: Any, words: str
) -> None:
    with (
        ScriptedWorker(controller.address, controller.worker_token("w1")),
        pytest.raises(grpc.RpcError, match=words) as refused,
    ):
        cluster.RemoveWorker(pb.RemoveWorkerRequest(worker_id=worker_id, reason=reason))
    assert refused.value.code() is code
