"""Jobs, tasks and a worker for tests of the store."""

from dataclasses import replace
from typing import Any

from iris.domain.constraints import Constraint, ConstraintOp
from iris.domain.entities import NO_TASKS, Job, Task, Worker
from iris.domain.ids import JobId, WorkerId, task_id
from iris.domain.job_spec import CallableEntrypoint, CommandEntrypoint, JobSpec
from iris.domain.resources import Device, Resources
from iris.domain.runtime import PackageSource, TaskRuntime
from iris.domain.states import JobState, PriorityBand

FULL_SPEC = JobSpec(
    job_id=JobId("/ann/train/child"), entrypoint=CallableEntrypoint("ab" * 32, "module:fn"),
    resources=Resources(1500, 2**30, 2**31, Device("tpu", "v5p-8", 4, ("v4-8",))), extras=("tpu",),
    pip_packages=("numpy>=2",), env_vars={"TOKEN": "secret", "UMLAUT": "ä\n"}, bundle_digest="cd" * 32, replicas=3,
    max_retries_failure=2, max_retries_preemption=0, max_task_failures=4, timeout_ms=1000, scheduling_timeout_ms=2000,
    constraints=(Constraint("zone", ConstraintOp.IN, ("a", "b"), True),), coscheduling_group_by="slice",
    ports=("http",), band=PriorityBand.BATCH, exclusive=True, fence_after_ms=30_000,
    runtime=TaskRuntime("sub/dir", "proj", "3.12", PackageSource.SUBMITTER, "/venv", "/usr/bin/python3"),
    description="how a füll spec is kept", retry_window_ms=3_600_000, health_cmd="curl -f localhost",
    health_interval_ms=1000, health_timeout_ms=500, health_retries=2, stall_timeout_ms=60_000,
    notify_url="https://hooks.example.com/key", enforced="memory,disk", limits_mode="enforced",
    start_at_ms=9, max_running=2, after="/ann/a:ok,/ann/b:any",
)  # fmt: skip
PLAIN_SPEC = JobSpec(job_id=JobId("/ann/plain"), entrypoint=CommandEntrypoint(("true",)))


def make_job(spec: JobSpec, sequence: int = 1, **fields: Any) -> Job:
    return replace(Job(spec, JobState.PENDING, 5, sequence=sequence, task_counts=NO_TASKS), **fields)


def make_tasks(spec: JobSpec, **fields: Any) -> list[Task]:
    return [replace(Task(task_id(spec.job_id, i), spec.job_id, i), **fields) for i in range(spec.replicas)]


WORKER = Worker(WorkerId("w1"), "one", Resources(2000, 1, 2), {"zone": "a"}, False, 77, "device errors", 3)
