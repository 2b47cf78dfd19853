"""What operators do, through the services: cordons, budgets; and what a submission does to a job that has its name."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from iris.rpc import iris_pb2 as pb
from iris.testing.controller import RunningController
from iris.testing.worker import ScriptedWorker
from rigging.testing import eventually


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def spec(name: str, **fields: Any) -> pb.JobSpec:
    return pb.JobSpec(
        job_id=name,
        entrypoint=pb.Entrypoint(command=pb.Command(argv=["true"])),
        resources=pb.Resources(cpu_millis=1000, memory_bytes=1 << 20),
        replicas=1,
        max_retries_preemption=10,
        **fields,
    )


def submit(user: Any, job: pb.JobSpec, policy: "pb.ExistingJobPolicy.ValueType" = 0) -> pb.SubmitJobResponse:
    return user.jobs.SubmitJob(pb.SubmitJobRequest(spec=job, existing=policy))


def test_a_cordoned_worker_gets_nothing_new_until_it_is_uncordoned(
    user: Any, admin: Any, worker: ScriptedWorker
) -> None:
    cluster = admin.stubs.cluster
    cluster.CordonWorker(pb.CordonWorkerRequest(worker_id="w1", reason="bad fan"))
    info = cluster.Status(pb.ClusterStatusRequest()).workers[0]
    assert info.cordon_reason == "bad fan"
    submit(user, spec("/ann/a"))
    eventually(
        lambda: "cordoned (w1: bad fan)" in user.get("/ann/a").pending_reason,
        "the job says which worker is cordoned, and why",
    )
    assert cluster.UncordonWorker(pb.UncordonWorkerRequest(worker_id="w1")).former_reason == "bad fan"
    worker.wait_for_start("/ann/a/0:0")


def test_a_drain_sends_what_runs_elsewhere_without_charging_it(
    controller: RunningController, user: Any, admin: Any, worker: ScriptedWorker
) -> None:
    submit(user, spec("/ann/a"))
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", pb.TASK_STATE_RUNNING)
    cluster = admin.stubs.cluster
    with ScriptedWorker(controller.address, controller.worker_token("w2"), worker_id="w2") as other:
        reply = cluster.CordonWorker(pb.CordonWorkerRequest(worker_id="w1", reason="new kernel", drain=True))
        assert reply.moved_attempt_ids == ["/ann/a/0:0"]
        worker.wait_for_stop("/ann/a/0:0")
        worker.observe("/ann/a/0:0", pb.TASK_STATE_KILLED)
        other.wait_for_start("/ann/a/0:1")
        task = user.task("/ann/a/0")
        assert (task.failures, task.preemptions) == (0, 0)
        assert "w1 is drained: new kernel" in task.causes[0]


def test_an_unknown_worker_is_refused_with_those_there_are(admin: Any, worker: ScriptedWorker) -> None:
    cluster = admin.stubs.cluster
    code, text = refused(lambda: cluster.CordonWorker(pb.CordonWorkerRequest(worker_id="w9", reason="x")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert text == "worker w9 does not exist; known are w1"


def test_a_budget_is_kept_and_limits_the_band(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    cluster = admin.stubs.cluster
    budget = pb.UserBudget(user="bob", max_weight=8, max_band=pb.PRIORITY_BAND_BATCH)
    cluster.SetBudget(pb.SetBudgetRequest(budget=budget))
    assert list(cluster.ListBudgets(pb.ListBudgetsRequest()).budgets) == [budget]
    assert cluster.ListBudgets(pb.ListBudgetsRequest(user="eve")).budgets[0].max_band == pb.PRIORITY_BAND_PRODUCTION
    code, text = refused(lambda: submit(admin, spec("/bob/a")))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "the most urgent allowed is batch" in text
    negative = pb.SetBudgetRequest(budget=pb.UserBudget(user="bob", max_weight=-1))
    assert refused(lambda: cluster.SetBudget(negative))[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_replace_ends_the_live_job_and_the_new_one_waits_for_its_attempts(user: Any, worker: ScriptedWorker) -> None:
    submit(user, spec("/ann/a"))
    worker.wait_for_start("/ann/a/0:0")
    worker.observe("/ann/a/0:0", pb.TASK_STATE_RUNNING)
    assert "stop it, adopt it, replace it" in refused(lambda: submit(user, spec("/ann/a")))[1]
    assert not submit(user, spec("/ann/a"), pb.EXISTING_JOB_POLICY_REPLACE).adopted
    worker.wait_for_stop("/ann/a/0:0")
    assert user.get("/ann/a").state == pb.JOB_STATE_PENDING
    assert [start.attempt_id for start in worker.starts] == ["/ann/a/0:0"]
    worker.observe("/ann/a/0:0", pb.TASK_STATE_KILLED)
    worker.wait_for_start("/ann/a/0:1")
    worker.observe("/ann/a/0:1", pb.TASK_STATE_SUCCEEDED)
    assert user.wait_one("/ann/a").state == pb.JOB_STATE_SUCCEEDED


def test_a_replacement_that_is_refused_leaves_the_live_job_alone(user: Any, admin: Any, worker: ScriptedWorker) -> None:
    submit(user, spec("/ann/a"))
    worker.wait_for_start("/ann/a/0:0")
    large = spec("/ann/a")
    large.resources.cpu_millis = 10**9
    code, text = refused(lambda: submit(user, large, pb.EXISTING_JOB_POLICY_REPLACE))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "can never run" in text
    budget = pb.UserBudget(user="ann", max_band=pb.PRIORITY_BAND_BATCH)
    admin.stubs.cluster.SetBudget(pb.SetBudgetRequest(budget=budget))
    urgent = spec("/ann/a", band=pb.PRIORITY_BAND_PRODUCTION)
    assert refused(lambda: submit(user, urgent, pb.EXISTING_JOB_POLICY_REPLACE))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert user.get("/ann/a").state in (pb.JOB_STATE_BUILDING, pb.JOB_STATE_RUNNING)
    assert not worker.stops


def test_children_go_on_when_the_stop_says_so(user: Any, worker: ScriptedWorker) -> None:
    submit(user, spec("/ann/a"))
    submit(user, spec("/ann/a/b"))
    worker.wait_for_start("/ann/a/b/0:0")
    reply = user.jobs.StopJob(pb.StopJobRequest(job_id="/ann/a", keep_children=True))
    assert list(reply.stopped_job_ids) == ["/ann/a"]
    assert user.get("/ann/a/b").state != pb.JOB_STATE_KILLED
    worker.observe("/ann/a/b/0:0", pb.TASK_STATE_SUCCEEDED)
    assert user.wait_one("/ann/a/b").state == pb.JOB_STATE_SUCCEEDED


def test_a_checkpoint_needs_a_remote_state(admin: Any) -> None:
    code, text = refused(lambda: admin.stubs.cluster.Checkpoint(pb.CheckpointRequest()))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "storage.remote_state_dir" in text


def test_reserved_accelerators_are_held_but_not_attached(controller: RunningController, user: Any) -> None:
    gpus = pb.Device(kind="gpu", variant="H100", count=8)
    capacity = pb.Resources(cpu_millis=8000, memory_bytes=8 << 30, disk_bytes=8 << 30, device=gpus)
    with ScriptedWorker(controller.address, controller.worker_token("w1"), capacity=capacity) as worker:
        job = spec("/ann/holds", reserve=True)
        job.resources.device.CopyFrom(pb.Device(kind="gpu", variant="H100", count=8))
        submit(user, job)
        start = worker.wait_for_start("/ann/holds/0:0")
        assert not start.launch.resources.HasField("device")
        other = spec("/ann/other")
        other.resources.device.CopyFrom(pb.Device(kind="gpu", variant="H100", count=1))
        submit(user, other)
        assert "worker w1 has 0 of 8 free" in user.get("/ann/other").pending_reason
    code, text = refused(lambda: submit(user, spec("/ann/nothing", reserve=True)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "no accelerator is asked for" in text
