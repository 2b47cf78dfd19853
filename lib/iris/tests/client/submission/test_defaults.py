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
from iris.cluster.types import Entrypoint, EnvironmentSpec, ExistingJobPolicy, JobState, ResourceSpec
from iris.domain.runtime import DEFAULT_RUNTIME

FAIL = {"existing": ExistingJobPolicy.FAIL}
WITH_CHILDREN = {"include_children": True}
PLAIN: tuple[Callable[..., Any], ...] = (
    IrisClient.list_jobs, IrisClient.wait_jobs, IrisClient.poll_jobs, IrisClient.cluster_status,
    IrisClient.query, IrisClient.stop_cluster, Job.logs, Task.logs, WorkerStatus, LogLine,
    SilentAttempt, Stopped,
)  # fmt: skip


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (IrisClient.submit, {"replicas": 1, "max_retries_preemption": 1000, "retry_delay": 1.0, **FAIL}),
        (IrisClient.submit_many, FAIL),
        (IrisClient.terminate, WITH_CHILDREN),
        (IrisClient.stop, WITH_CHILDREN),
        (IrisClient.stop_many, WITH_CHILDREN),
        (IrisClient.read_logs, {"attempt": -1}),
        (IrisClient.__init__, {"inherit_workspace": True}),
        (IrisClient.of, {"inherit_workspace": True}),
        (Job.wait, {"timeout": 300.0, "raise_on_failure": True}),
        (Connection.__init__, {"connect_timeout": CONNECT_TIMEOUT}),
        (Connection.run, {"retry": True}),
        (JobPlan, {"limits": JobLimits(0, 1000), "replicas": 1}),
        (JobLimits, {"max_retries_preemption": 1000, "retry_delay": 1.0}),
        (JobStatus, {"replicas": 1}),
        (TaskStatus, {"attempt": -1}),
        (ClusterStatus, {"durability": "local"}),
        *((plain, {}) for plain in PLAIN),
        (JobEnv, {"num_tasks": 1, "runtime": DEFAULT_RUNTIME}),
    ],
    ids=lambda value: getattr(value, "__qualname__", None),
)
def test_what_is_not_said_is_nothing_but_for_these(function: Callable[..., Any], expected: dict[str, Any]) -> None:
    defaults = {name: item.default for name, item in inspect.signature(function).parameters.items()}
    said = {name: value for name, value in defaults.items() if value is not inspect.Parameter.empty and value}
    assert {name: value for name, value in said.items() if repr(value) != "<factory>"} == expected


@pytest.mark.parametrize(
    ("connected", "late", "trouble", "cordoned", "state"),
    [
        (True, False, "", "", "connected"),
        (True, True, "", "", "late"),
        (True, False, "", "x", "cordoned"),
        (True, True, "", "x", "late, cordoned"),
        (False, False, "", "", "away"),
        (False, True, "", "", "away"),
        (False, False, "", "x", "away, cordoned"),
        (True, False, "no guardian", "x", "stuck, cordoned"),
    ],
)
def test_the_state_of_a_worker_in_words(connected: bool, late: bool, trouble: str, cordoned: str, state: str) -> None:
    worker = WorkerStatus(
        "w", connected, 1, 1, 1, "", 0, 0, 0, is_late=late, cordon_reason=cordoned, trouble=trouble
    )  # fmt: skip
    assert (worker.state, worker.to_json()["trouble"]) == (state, trouble)


def test_bytes_that_are_no_text_are_shown_as_such_and_a_pending_job_lives() -> None:
    assert LogLine("/a/b/0", 0, False, 0, b"\xff").text == "\ufffd"
    assert not JobStatus("/a/b", JobState.PENDING).is_terminal
    plan = JobPlan(Entrypoint.from_command("true"), "n")
    assert (plan.resources, plan.environment, plan.limits) == (ResourceSpec(), EnvironmentSpec(), JobLimits(0, 1000))
