"""What is not said means what is documented: the defaults of the client's values and calls."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from iris.client import IrisClient, JobStatus, TaskStatus
from iris.client.connection.connection import CONNECT_TIMEOUT, Connection
from iris.client.job import Job, Task
from iris.client.job_env import JobEnv
from iris.client.plan import JobLimits, JobPlan
from iris.client.types import ClusterStatus, LogLine, SilentAttempt, Stopped, WorkerStatus
from iris.cluster.types import Entrypoint, EnvironmentSpec, ExistingJobPolicy, JobState, ResourceSpec, TaskState
from iris.domain.runtime import DEFAULT_RUNTIME

EMPTY = inspect.Parameter.empty


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    found = inspect.signature(function).parameters.items()
    return {name: item.default for name, item in found if item.default is not EMPTY}


def test_a_plan_that_says_nothing() -> None:
    plan = JobPlan(Entrypoint.from_command("true"), "n")
    assert plan.limits == JobLimits(0, 1000, None, None, 0)
    assert (plan.user, plan.replicas, plan.resources, plan.environment) == (None, 1, ResourceSpec(), EnvironmentSpec())
    assert (plan.constraints, plan.coscheduling, plan.ports, plan.priority_band) == ((), None, (), None)
    assert (plan.reserve, plan.exclusive, plan.fence_after, plan.working_dir) == (False, False, None, None)
    assert plan.description == ""
    assert (plan.soft_limits, plan.cpu_quota) == (None, False)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            IrisClient.submit,
            {
                "resources": None, "environment": None, "ports": None, "scheduling_timeout": None, "constraints": None,
                "coscheduling": None, "replicas": 1, "max_retries_failure": 0, "max_retries_preemption": 1000,
                "timeout": None, "user": None, "priority_band": None, "max_task_failures": 0, "reserve": False,
                "exclusive": False, "fence_after": None, "working_dir": None, "description": "", "notify_url": "",
                "retry_window": None, "health": None, "stall_timeout": None,
                "soft_limits": None, "limits_said": None, "cpu_quota": False,
                "existing": ExistingJobPolicy.FAIL, "adopt_existing": False, "idempotency_key": None,
                "reservation": None, "existing_job_policy": None, "preemption_policy": None, "task_image": None,
            },
        ),
        (IrisClient.submit_many, {"existing": ExistingJobPolicy.FAIL}),
        (IrisClient.terminate, {"reason": "", "include_children": True}),
        (IrisClient.stop, {"reason": "", "include_children": True}),
        (IrisClient.stop_many, {"reason": "", "include_children": True}),
        (IrisClient.list_jobs, {"prefix": "", "states": (), "limit": 0, "state": None}),
        (
            IrisClient.read_logs,
            {
                "since": 0, "max_lines": 0, "from_start": False, "follow": False, "include_children": False,
                "grep": "", "level": "", "until": 0, "attempt": -1,
            },
        ),
        (IrisClient.wait_jobs, {"any": False, "timeout": None}),
        (IrisClient.poll_jobs, {"any": False, "seconds": 0}),
        (IrisClient.cluster_status, {"all_workers": False}),
        (IrisClient.query, {"max_rows": 0}),
        (IrisClient.stop_cluster, {"stop_jobs": False}),
        (
            IrisClient.__init__,
            {
                "workspace": None, "user": None, "inside": None, "on_warning": None, "on_notice": None,
                "inherit_workspace": True, "same_machine": False, "calls": None,
            },
        ),
        (
            IrisClient.of,
            {
                "workspace": None, "user": None, "on_warning": None, "on_notice": None, "on_interrupted": None,
                "inherit_workspace": True, "on_sending": None,
            },
        ),
        (Job.wait, {"timeout": 300.0, "poll_interval": None, "raise_on_failure": True, "stream_logs": False}),
        (Job.logs, {"max_lines": 0}),
        (Task.logs, {"max_lines": 0}),
        (
            Connection.__init__,
            {
                "attempt_id": None, "reconnect_timeout": None, "connect_timeout": CONNECT_TIMEOUT,
                "on_interrupted": None,
            },
        ),
        (Connection.run, {"retry": True}),
    ],
)  # fmt: skip
def test_calls(function: Callable[..., Any], expected: dict[str, Any]) -> None:
    assert defaults(function) == expected


def test_what_the_cluster_did_not_say() -> None:
    job = JobStatus("/a/b", JobState.PENDING)
    assert (job.error, job.pending_reason, job.parent_id, job.deciding_task_id, job.command) == ("",) * 5
    assert (job.submitted_at_ms, job.started_at_ms, job.finished_at_ms, job.exit_code, job.exit_signal) == (0,) * 5
    assert (job.replicas, job.task_counts, job.is_terminal) == (1, {}, False)
    task = TaskStatus("/a/b/0", TaskState.PENDING)
    assert (task.attempt, task.exit_code, task.exit_signal, task.started_at_ms, task.finished_at_ms) == (-1, 0, 0, 0, 0)
    assert (task.failures, task.preemptions, task.causes, task.silent) == (0, 0, (), ())
    worker = WorkerStatus("w", True, 1, 1, 1, "", 0, 0, 0)
    assert (worker.attributes, worker.cordon_reason, worker.strikes, worker.last_seen_at_ms) == ({}, "", 0, 0)
    assert not worker.is_late
    line = LogLine("/a/b/0", 0, False, 0, b"\xff")
    assert (line.partial, line.note, line.text) == (False, False, "\ufffd")
    silent = SilentAttempt("/a/b/0:0", "w", 1)
    assert (silent.is_wanted, silent.fenced_in_seconds) == (False, None)
    assert Stopped(()).silent == ()
    status = ClusterStatus("1", 2, 3, "/s", 4, 5, 6, 7)
    assert (status.workers, status.remote_state_dir, status.durability, status.disk_warning) == ((), "", "local", "")
    assert (status.unreplicated_commits, status.last_snapshot_at_ms, status.generation) == (0, 0, 0)


@pytest.mark.parametrize(
    ("connected", "late", "cordoned", "state"),
    [
        (True, False, "", "connected"),
        (True, True, "", "late"),
        (True, False, "x", "cordoned"),
        (True, True, "x", "late, cordoned"),
        (False, False, "", "away"),
        (False, True, "", "away"),
        (False, False, "x", "away, cordoned"),
    ],
)
def test_the_state_of_a_worker_in_words(connected: bool, late: bool, cordoned: str, state: str) -> None:
    assert WorkerStatus("w", connected, 1, 1, 1, "", 0, 0, 0, is_late=late, cordon_reason=cordoned).state == state


def test_a_worker_that_starts_nothing_is_stuck() -> None:
    worker = WorkerStatus("w", True, 1, 1, 1, "", 0, 0, 0, trouble="no guardian", cordon_reason="x")
    assert (worker.state, worker.to_json()["trouble"]) == ("stuck, cordoned", "no guardian")


def test_a_jobs_environment_without_more() -> None:
    job = JobEnv("h:1", "/a/b", "/a/b/0", "/a/b/0:0", "w", "")
    assert (job.work_dir, job.bundle_digest, job.workspace_dir) == ("", "", "")
    assert (job.num_tasks, job.extras, job.pip_packages, job.ports) == (1, (), (), {})
    assert job.runtime == DEFAULT_RUNTIME
