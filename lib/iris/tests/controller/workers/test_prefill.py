"""A whole controller that prefills: what the worker is told, and what people see."""

from collections.abc import Iterator
from typing import Any

import pytest

from iris.rpc.generated import iris_pb2 as pb
from support.iris.controller import RunningController
from support.iris.worker import ScriptedWorker

REPLICAS = 12
NAMES = [f"/ann/a/{index}:0" for index in range(REPLICAS)]


def worker_of(controller: RunningController, *inventory: pb.Observation) -> ScriptedWorker:
    return ScriptedWorker(
        controller.address,
        controller.worker_token("w1"),
        capacity=pb.Resources(cpu_millis=1000, memory_bytes=8 << 30, disk_bytes=100 << 30),
        inventory=inventory,
    )


@pytest.fixture
def worker(controller: RunningController) -> Iterator[ScriptedWorker]:
    with worker_of(controller) as connected:
        yield connected


def begin(user: Any, worker: ScriptedWorker) -> list[str]:
    """An array of which the first task has run for 3 ms and the second runs; the rest is prefilled."""
    user.submit("/ann/a", replicas=REPLICAS, cpu_millis=1000)
    worker.wait_for_start(NAMES[0])
    worker.observe(NAMES[0], pb.TASK_STATE_SUCCEEDED, started_at_ms=1_000, at_ms=1_003)
    worker.wait_for_start(NAMES[1])
    worker.observe(NAMES[1], pb.TASK_STATE_RUNNING)
    worker.wait(lambda: len(worker.starts) == REPLICAS, "the others are prefilled")
    return [start.attempt_id for start in worker.starts if start.prefilled]


def test_the_others_come_in_few_messages_and_are_started_without_a_word(user: Any, worker: ScriptedWorker) -> None:
    prefilled = begin(user, worker)
    assert prefilled == NAMES[2:]
    ended = [pb.Observation(attempt_id=name, state=pb.TASK_STATE_SUCCEEDED) for name in NAMES[1:]]
    worker.send(pb.WorkerMessage(observations=ended))
    assert user.wait_one("/ann/a").state == pb.JOB_STATE_SUCCEEDED
    assert len(worker.starts) == REPLICAS, "none was sent again"


def test_people_see_that_it_waits_there_and_holds_nothing(user: Any, worker: ScriptedWorker) -> None:
    begin(user, worker)
    task = user.task("/ann/a/2")
    assert (task.state, task.worker_id, task.started_at_ms) == (pb.TASK_STATE_ASSIGNED, "w1", 0)
    assert task.pending_reason == "assigned to worker w1, where it begins when a task of its kind ends"
    (info,) = user.cluster.Status(pb.ClusterStatusRequest()).workers
    assert (info.running_tasks, info.committed.cpu_millis) == (1, 1000)
