"""A small parent on a cluster with hosts of both kinds: where it is placed, also when the better host is full."""

from typing import Any

from iris.rpc import iris_pb2 as pb
from iris.testing.controller import RunningController
from iris.testing.worker import ScriptedWorker

GIB = 2**30


def test_a_small_parent_is_placed_off_preemptible_hosts_and_on_them_when_the_others_are_full(
    controller: RunningController, user: Any
) -> None:
    workers = [
        ScriptedWorker(
            controller.address,
            controller.worker_token(name),
            name,
            capacity=pb.Resources(cpu_millis=cores * 1000, memory_bytes=cores * GIB),
            attributes={"preemptible": preemptible},
        )
        for name, cores, preemptible in (("goes", 4, "true"), ("stays", 2, "false"))
    ]
    with workers[0] as goes, workers[1] as stays:
        for number, worker in enumerate((stays, stays, goes)):
            user.submit(f"/ann/parent-{number}", cpu_millis=1000)
            worker.wait_for_start(f"/ann/parent-{number}/0:0")
        user.submit("/ann/filler", cpu_millis=3000, memory_bytes=GIB)
        goes.wait_for_start("/ann/filler/0:0")
        user.submit("/ann/parent-3", cpu_millis=1000)
        (task,) = user.jobs.ListTasks(pb.ListTasksRequest(job_id="/ann/parent-3")).tasks
        assert "hosts that are not preemptible are preferred" in task.pending_reason
