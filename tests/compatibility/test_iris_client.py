"""The client of iris as older programs call it."""

import logging

import pytest

from iris.client import IrisClient, Job, JobPlan, LogLine, ReservationEntry
from iris.client import JobStatus as Status
from iris.cluster.types import Entrypoint, ExistingJobPolicy, JobName, JobState, ResourceSpec, gpu_device, tpu_device
from rigging.timing import Duration


class Recorder(IrisClient):
    """A client whose controller is this object."""

    def __init__(self):
        self.plans = []
        self.ended = []

    def submit_plan(self, plan: JobPlan, *, existing, idempotency_key=None):
        self.plans.append((plan, existing))
        return Job(self, f"{plan.parent or '/ann'}/{plan.name}")

    def with_workspace(self, workspace):
        return self

    def status(self, job_id):
        return Status(str(job_id), JobState.RUNNING)

    def list_jobs(self, prefix="", states=(), limit=0, *, state=None):
        return [Status(job_id, JobState.RUNNING) for job_id in ("/ann/sweep-1", "/ann/other", "/ann/sweep-2")]

    def terminate(self, job_id, reason="", *, include_children=True):
        self.ended.append(job_id)
        return [job_id]

    def read_logs(self, task_id, **_):
        yield LogLine("/ann/train/0", 1, False, 1000, b"half ", partial=True)
        yield LogLine("/ann/train/0", 1, True, 1500, b"oops")
        yield LogLine("/ann/train/0", 1, False, 2000, b"line")


@pytest.mark.compatible("submit(timeout=Duration, scheduling_timeout=Duration)", since="0.1.0")
@pytest.mark.compatible("submit(reservation=, existing_job_policy=, preemption_policy=, task_image=)", since="0.1.0")
def test_a_submission(caplog):
    client = Recorder()
    with caplog.at_level(logging.WARNING):
        client.submit(
            Entrypoint.from_command("true"),
            "train",
            ResourceSpec(cpu=1),
            timeout=Duration.from_minutes(2),
            scheduling_timeout=Duration.from_seconds(3),
            existing_job_policy="recreate",
            preemption_policy="preserve_children",
            task_image="gcr.io/x/y",
            reservation=[ResourceSpec(device=tpu_device("v5p-8"))],
        )
    ((plan, existing),) = client.plans
    assert (plan.limits.timeout, plan.limits.scheduling_timeout) == (120.0, 3.0)
    assert existing is ExistingJobPolicy.REPLACE
    assert plan.reserve
    assert plan.resources.device == tpu_device("v5p-8")
    assert plan.image == "gcr.io/x/y"
    assert not caplog.text


@pytest.mark.compatible("submit(reservation=[different devices]): held for the job and those below it", since="0.1.0")
def test_a_reservation_of_several_devices():
    client = Recorder()
    pod, gpus = ReservationEntry(ResourceSpec(device=tpu_device("v5p-16"))), gpu_device("H100", 8)
    client.submit(Entrypoint.from_command("true"), "exp", ResourceSpec(cpu=1), reservation=[pod, gpus, gpus])
    (job, *holders) = [plan for plan, _ in client.plans]
    assert (job.resources.device, job.reserve) == (None, False)
    assert [(each.parent, each.resources.device, each.replicas, each.reserve) for each in holders] == [
        ("/ann/exp", tpu_device("v5p-16"), 2, True),
        ("/ann/exp", gpus, 2, True),
    ]


@pytest.mark.compatible("submit(preemption_policy=): a warning names a policy without effect", since="0.1.0")
def test_a_policy_that_is_not_kept_is_told(caplog):
    client, program = Recorder(), Entrypoint.from_command("true")
    client.submit(program, "train", preemption_policy="JOB_PREEMPTION_POLICY_PRESERVE_CHILDREN")
    client.submit(program, "train")
    assert not caplog.records
    client.submit(program, "train", preemption_policy="terminate_children")
    assert "'terminate_children' has no effect" in caplog.text
    assert len(client.plans) == 3


@pytest.mark.compatible("submit(timeout=seconds)", since="0.1.0")
def test_times_may_be_seconds():
    client = Recorder()
    client.submit(Entrypoint.from_command("true"), "train", timeout=2.5)
    assert client.plans[0][0].limits.timeout == 2.5


@pytest.mark.compatible("IrisClient.job_state terminate_prefix list_jobs(state=) shutdown(wait=)", since="0.1.0")
def test_jobs_of_a_prefix():
    client = Recorder()
    assert client.job_state(JobName.from_wire("/ann/train")) is JobState.RUNNING
    assert client.terminate_prefix("/ann/sweep") == ["/ann/sweep-1", "/ann/sweep-2"]
    assert client.ended == ["/ann/sweep-1", "/ann/sweep-2"]
    IrisClient.remote("localhost:1").shutdown(wait=True)


@pytest.mark.compatible("fetch_task_logs(target=): TaskLogEntry(timestamp, task_id, source, data, ...)", since="0.1.0")
def test_the_log_of_a_task():
    first, second = Recorder().fetch_task_logs(target=JobName.from_wire("/ann/train/0"))
    assert (first.source, first.data, first.timestamp.epoch_ms()) == ("stderr", "oops", 1500)
    assert (second.source, second.data) == ("stdout", "half line")
    assert (second.task_id, second.attempt_id, second.key) == ("/ann/train/0", 1, "/ann/train/0:1")
    assert [entry.data for entry in Recorder().fetch_task_logs("/ann/train/0", substring="oo")] == ["oops"]


@pytest.mark.compatible("Job.job_id, Task.task_id: JobName; Task.task_index .job_id; Job.state_only()", since="0.1.0")
def test_handles():
    from iris.client import Task

    job = Job(Recorder(), "/ann/train")
    assert isinstance(job.job_id, JobName)
    assert job.job_id == "/ann/train"
    assert job.state_only() is JobState.RUNNING
    task = Task(Recorder(), "/ann/train/4")
    assert (task.task_id.task_index, task.task_index, task.job_id) == (4, 4, "/ann/train")
    assert isinstance(task.job_id, JobName)
