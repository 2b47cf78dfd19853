from pathlib import Path
from typing import Any

import pytest

from iris.client import IrisClient, JobPlan, ReservationEntry
from iris.client.connection.discovery import cluster_at
from iris.client.reservation import holding
from iris.cluster.types import CoschedulingConfig, Entrypoint, JobState, ResourceSpec, gpu_device, tpu_device
from iris.domain.resources import SLICE_ATTRIBUTE
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import InvalidRequest
from support.iris.controller import running_controller
from support.iris.worker import ScriptedWorker

V5P_8, V5P_16, H100 = tpu_device("v5p-8"), tpu_device("v5p-16"), gpu_device("H100", 8)
TRUE = Entrypoint.from_command("true")


def plan(**fields: Any) -> JobPlan:
    return JobPlan(TRUE, "exp", priority_band="batch", **fields)


def test_tasks_hold_one_device_each_where_that_is_all() -> None:
    held = holding(plan(), [ReservationEntry(ResourceSpec(device=V5P_8)), V5P_8], 2)
    assert (held.own, held.resources.device, held.jobs) == (True, V5P_8, ())
    assert holding(plan(), None, 1).jobs == ()


@pytest.mark.parametrize(
    ("reservation", "replicas", "jobs"),
    [
        ([V5P_8, V5P_8, H100], 1, [("reserve-0-v5p-8", 2), ("reserve-1-H100", 1)]),
        ([V5P_8, V5P_8], 1, [("reserve-0-v5p-8", 2)]),
        ([V5P_16], 1, [("reserve-0-v5p-16", 2)]),
        ([V5P_16, H100, V5P_16], 1, [("reserve-0-v5p-16", 2), ("reserve-1-v5p-16", 2), ("reserve-2-H100", 1)]),
    ],
    ids=["different", "more than tasks", "a slice", "slices and others"],
)
def test_all_else_is_held_by_jobs(reservation: list[Any], replicas: int, jobs: list[tuple[str, int]]) -> None:
    held = holding(plan(), reservation, replicas)
    assert (held.own, held.resources.device) == (False, None)
    assert [(job.name, job.replicas) for job in held.jobs] == jobs
    assert all(job.reserve and job.priority_band == "batch" for job in held.jobs)
    slices = [job.coscheduling for job in held.jobs if job.resources.device == V5P_16]
    assert all(each == CoschedulingConfig(SLICE_ATTRIBUTE) for each in slices)


def test_a_job_with_a_device_of_its_own_does_not_hold_another() -> None:
    held = holding(plan(resources=ResourceSpec(device=H100)), [V5P_8], 1)
    assert held.resources.device == H100
    assert [job.resources.device for job in held.jobs] == [V5P_8]


def test_an_entry_without_a_device_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="names no device"):
        holding(plan(), [ResourceSpec()], 1)


def test_a_job_below_uses_what_is_held_and_what_no_host_has_is_refused(tmp_path: Path) -> None:
    def host(name: str, kind: str, variant: str, count: int) -> ScriptedWorker:
        device = pb.Device(kind=kind, variant=variant, count=count)
        capacity = pb.Resources(cpu_millis=8000, memory_bytes=8 << 30, disk_bytes=8 << 30, device=device)
        return ScriptedWorker(controller.address, controller.worker_token(name), name, capacity=capacity)

    with (
        running_controller(tmp_path / "state") as controller,
        host("t", "tpu", "v5p-8", 4) as tpu,
        host("g", "gpu", "H100", 8) as gpu,
        IrisClient.of(cluster_at(str(controller.address), token=controller.user_token, environ={})) as client,
    ):
        job = client.submit(TRUE, "exp", ResourceSpec(cpu=1), reservation=[V5P_8, H100])
        tpu.wait_for_start(f"{job.job_id}/reserve-0-v5p-8/0:0")
        gpu.wait_for_start(f"{job.job_id}/reserve-1-H100/0:0")
        stranger = client.submit(TRUE, "other", ResourceSpec(device=V5P_8))
        client.submit_plan(JobPlan(TRUE, "train", resources=ResourceSpec(device=V5P_8), parent=str(job.job_id)))
        tpu.wait_for_start(f"{job.job_id}/train/0:0")
        assert stranger.state_only() is JobState.PENDING
        job.terminate()
        for attempt in ("train", "reserve-0-v5p-8"):
            tpu.observe(f"{job.job_id}/{attempt}/0:0", pb.TASK_STATE_KILLED)
        tpu.wait_for_start(f"{stranger.job_id}/0:0")
        with pytest.raises(InvalidRequest, match="v4-8"):
            client.submit(TRUE, "never", ResourceSpec(cpu=1), reservation=[H100, tpu_device("v4-8")])
        left = [found for found in client.list_jobs() if "/never" in found.job_id]
        assert left
        assert all(found.state.is_terminal for found in left), "nothing stays"
