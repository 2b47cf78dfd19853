"""No field of what the cluster says is lost, mixed up or given in another unit on the way to plain values."""

import dataclasses
from typing import Any

import pytest
from google.protobuf.message import Message

from iris.client.connection import wire
from iris.client.plan import JobLimits, JobPlan, spec_of
from iris.client.types import JobStatus, LogLine, SilentAttempt, TaskStatus, WorkerAttempt
from iris.cluster.constraints import region_constraint
from iris.cluster.types import (
    CoschedulingConfig,
    Entrypoint,
    EnvironmentSpec,
    HealthCheck,
    JobState,
    PriorityBand,
    ResourceSpec,
    TaskState,
    gpu_device,
)
from iris.domain.ids import JobId
from iris.domain.job_spec import JobSpec
from iris.domain.runtime import TaskRuntime
from iris.rpc.convert_job import spec_to_wire
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logformat import encode
from rigging.errors import InvalidRequest
from support.iris.messages import filled


def same_names(value: Any, message: Message) -> dict[str, tuple[Any, Any]]:
    """What differs between a plain value and the message it was made of, by the names that both have."""
    names = {field.name for field in message.DESCRIPTOR.fields if not field.is_repeated}
    return {
        field.name: (getattr(value, field.name), getattr(message, field.name))
        for field in dataclasses.fields(value)
        if field.name in names and getattr(value, field.name) != getattr(message, field.name)
    }


def test_the_status_of_a_job() -> None:
    message = filled(pb.JobStatus(state=pb.JOB_STATE_FAILED))
    message.task_counts.add(state=pb.TASK_STATE_RUNNING, count=3)
    message.task_counts.add(state=pb.TASK_STATE_FAILED, count=2)
    found = wire.job_status(message)
    assert same_names(found, message) == {}
    assert (found.state, found.command) == (JobState.FAILED, "the display_command")
    assert found.task_counts == {TaskState.RUNNING: 3, TaskState.FAILED: 2}


def test_the_status_of_a_task_and_of_what_is_out_of_reach() -> None:
    silent = filled(pb.SilentAttempt())
    message = filled(pb.TaskStatus(state=pb.TASK_STATE_KILLED, causes=["a", "b"], silent=[silent]))
    found = wire.task_status(message)
    assert same_names(found, message) == {}
    assert found.causes == ("a", "b")
    [attempt] = found.silent
    assert same_names(attempt, silent) == {}
    assert attempt.silent_seconds == silent.silent_ms / 1000
    assert attempt.fenced_in_seconds == silent.fenced_in_ms / 1000
    assert wire.silent_attempt(pb.SilentAttempt(attempt_id="/a/b/0:0")).fenced_in_seconds is None


def test_what_a_stop_did() -> None:
    silent = pb.SilentAttempt(attempt_id="/a/b/0:0", worker_id="w", silent_ms=1500)
    found = wire.stopped(pb.StopJobResponse(stopped_job_ids=["/a/b", "/a/b/c"], silent=[silent]))
    assert found.job_ids == ("/a/b", "/a/b/c")
    assert found.silent == (SilentAttempt("/a/b/0:0", "w", 1.5),)


def test_lines_of_a_log() -> None:
    parts = [
        pb.LogPart(task_id="/a/b/0", attempt=2, records=encode(True, 5, b"x")),
        pb.LogPart(task_id="/a/b/1", records=encode(False, 6, b"y", partial=True) + encode(True, 7, b"", note=True)),
    ]
    assert list(wire.log_lines(pb.LogBatch(parts=parts))) == [
        LogLine("/a/b/0", 2, True, 5, b"x"),
        LogLine("/a/b/1", 0, False, 6, b"y", partial=True),
        LogLine("/a/b/1", 0, True, 7, b"", note=True),
    ]


def test_the_status_of_a_cluster_and_its_workers() -> None:
    worker = filled(pb.WorkerInfo(attributes={"zone": "z"}))
    device = pb.Device(kind="gpu", variant="H100", count=8)
    worker.capacity.CopyFrom(pb.Resources(cpu_millis=2500, memory_bytes=7, disk_bytes=9, device=device))
    worker.committed.CopyFrom(pb.Resources(cpu_millis=1500, memory_bytes=3))
    message = filled(pb.ClusterStatusResponse(workers=[worker, pb.WorkerInfo(worker_id="plain")]))
    found = wire.cluster_status(message)
    assert same_names(found, message) == {}
    assert found.idle_exit_seconds == message.idle_exit_ms / 1000
    first, second = found.workers
    assert same_names(first, worker) == {}
    assert (first.cpu, first.memory_bytes, first.disk_bytes, first.device) == (2.5, 7, 9, "8 gpu H100")
    assert (first.committed_cpu, first.committed_memory_bytes, first.attributes) == (1.5, 3, {"zone": "z"})
    assert (second.device, second.connected, second.is_late) == ("", False, False)
    use = filled(pb.AttemptUsage())
    attempts = [pb.WorkerAttempt(attempt_id="/a/b/0:0", state="running", usage=use), pb.WorkerAttempt(state="stopping")]
    assert wire.worker_with_attempts(pb.WorkerInfo(attempts=attempts)).attempts == (
        WorkerAttempt("/a/b/0:0", "running", wire.attempt_usage(use)),
        WorkerAttempt("", "stopping"),
    )


def test_budgets_checkpoints_and_answers() -> None:
    budget = filled(pb.UserBudget(max_band=pb.PRIORITY_BAND_BATCH))
    found = wire.user_budget(budget)
    assert same_names(found, budget) == {}
    assert found.max_band is PriorityBand.BATCH
    assert wire.user_budget(pb.UserBudget(user="ann")).max_band is PriorityBand.PRODUCTION
    done = filled(pb.CheckpointResponse())
    assert same_names(wire.checkpoint(done), done) == {}
    values = [
        pb.QueryValue(integer=0), pb.QueryValue(real=0.5), pb.QueryValue(text=""), pb.QueryValue(blob=b""),
        pb.QueryValue(),
    ]  # fmt: skip
    answer = wire.query_result(pb.QueryResponse(columns=["a", "b"], rows=[pb.QueryRow(values=values)], truncated=True))
    assert answer.columns == ("a", "b")
    assert answer.rows == ((0, 0.5, "", b"", None),)
    assert answer.truncated


def job(**changes: Any) -> JobSpec:
    plan = JobPlan(
        name="b",
        entrypoint=Entrypoint.from_command("python", "x.py"),
        resources=ResourceSpec(1.5, "2GB", "3GB", gpu_device("H100", 4)),
        environment=EnvironmentSpec(["numpy"], {"K": "v"}, ["tpu"]),
        limits=JobLimits(4, 5, 6, 7, 8, 9),
        constraints=[region_constraint(["r1", "r2"])],
        coscheduling=CoschedulingConfig("slice"),
        ports=["http"],
        priority_band=PriorityBand.BATCH,
        reserve=True,
        exclusive=True,
        fence_after=9,
        description="why",
        notify_url="https://hooks.example.com/x",
        health=HealthCheck("true", 1, 2, 3),
        stall_timeout=4,
        grace=6,
        start_at=5,
        max_running=3,
        after=["a", "b:any", "/bob/c:ok"],
        soft_limits=False,
    )
    plan = dataclasses.replace(plan, **changes)
    return spec_of(
        plan,
        JobId("/a/b"),
        payload_digest="ab",
        environment=plan.environment,
        replicas=3,
        runtime=lambda: TaskRuntime(working_dir="sub"),
        bundle_digest=lambda: "d",
    )


def sent(**changes: Any) -> pb.JobSpec:
    return spec_to_wire(job(**changes), with_env_vars=True)


def test_every_field_of_a_job_is_sent() -> None:
    spec = sent()
    given = {field.name for field, _ in spec.ListFields()}
    assert given == {field.name for field in pb.JobSpec.DESCRIPTOR.fields}
    # The values of all others are held by test_client.py, from the arguments of a call on.
    plain = {
        "job_id": "/a/b", "bundle_digest": "d", "reserve": True, "health_cmd": "true", "health_interval_ms": 1000,
        "health_timeout_ms": 2000, "health_retries": 3, "after": "/a/a:ok,/a/b:any,/bob/c:ok",
    }  # fmt: skip
    assert {name: getattr(spec, name) for name in plain} == plain
    with pytest.raises(InvalidRequest, match="max_running is 2, but the 3 tasks of a gang run together: leave it out"):
        job(max_running=2)
    for after, why in (
        (["a:never"], "after names 'a:never'; use a, a:ok"),
        (["a", "a:any"], "after names /[a-z/]*/a with both conditions"),
        (["/a"], "'/a' is not a job id"),
        (["a b"], "'a b' is not a valid name"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            job(after=after)


def test_a_callable_is_named_by_its_digest() -> None:
    spec = sent(entrypoint=Entrypoint.from_callable(sent))
    assert spec.entrypoint.callable.payload_digest == "ab"
    assert spec.entrypoint.callable.display_name.endswith(":sent")


def test_statuses_as_plain_data_have_all_their_fields() -> None:
    job = JobStatus("/a/b", JobState.RUNNING, task_counts={TaskState.RUNNING: 2}, started_at_ms=500)
    task = TaskStatus("/a/b/0", TaskState.PENDING, causes=("x",), silent=(SilentAttempt("/a/b/0:0", "w", 1),))
    for status in (job, task, task.silent[0]):
        assert set(status.to_json()) == {field.name for field in dataclasses.fields(status)}
    assert (job.to_json()["state"], job.to_json()["task_counts"]) == ("running", {"running": 2})
    assert task.to_json()["silent"] == [task.silent[0].to_json()]
    assert job.duration_seconds(2500) == 2.0
    assert dataclasses.replace(job, finished_at_ms=1500).duration_seconds(2500) == 1.0
    assert dataclasses.replace(job, finished_at_ms=400).duration_seconds(2500) == 0.0
    assert task.duration_seconds(2500) is None
