"""What jobs, tasks and workers are when nothing is said, and what follows from what is said."""

from dataclasses import fields, replace
from typing import Any

import pytest

from iris.domain.entities import NO_TASKS, Job, Task, UserBudget, Worker
from iris.domain.ids import JobId, TaskId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import JobState, PriorityBand, TaskState

SPEC = JobSpec(JobId("/u/a"), CommandEntrypoint(("true",)))


def set_fields(made: Any, *given: str) -> dict[str, Any]:
    """What is not nothing, besides what was given."""
    found = {item.name: getattr(made, item.name) for item in fields(made) if item.name not in given}
    return {name: value for name, value in found.items() if value not in (0, "", None, (), {})}


def test_a_new_job_task_and_worker_have_done_nothing() -> None:
    job = Job(SPEC, JobState.PENDING, 5)
    assert set_fields(job, "spec", "state", "submitted_at_ms") == {"task_counts": NO_TASKS}
    task = Task(TaskId("/u/a/0"), JobId("/u/a"), 0)
    assert set_fields(task, "task_id", "job_id", "index") == {"state": TaskState.PENDING, "attempt": -1}
    assert set_fields(Worker(WorkerId("w"), "i", Resources()), "worker_id", "instance_id", "capacity") == {}
    assert (UserBudget("ann").max_weight, UserBudget("ann").max_band) == (0, PriorityBand.PRODUCTION)


def test_tasks_are_counted_by_state() -> None:
    counts = tuple(2 if number == TaskState.FAILED else 0 for number in range(len(NO_TASKS)))
    job = replace(Job(SPEC, JobState.FAILED, 5), task_counts=counts)
    assert (job.job_id, job.count(TaskState.FAILED), job.count(TaskState.PENDING)) == ("/u/a", 2, 0)
    assert job.counts == {TaskState.FAILED: 2}
    assert len(NO_TASKS) == max(TaskState) + 1


def test_an_attempt_is_named_by_its_task_and_number() -> None:
    assert Task(TaskId("/u/a/3"), JobId("/u/a"), 3, attempt=2).attempt_id == "/u/a/3:2"


@pytest.mark.parametrize(
    ("fields_", "is_open"),
    [
        ({"connected": True}, True),
        ({}, False),
        ({"connected": True, "cordon_reason": "fan"}, False),
        ({"connected": True, "is_late": True}, False),
        ({"connected": True, "trouble": "its guardian is away"}, False),
        ({"connected": True, "strikes": 2}, True),
    ],
)
def test_a_worker_takes_work_while_it_is_there_and_well(fields_: dict[str, Any], is_open: bool) -> None:
    assert Worker(WorkerId("w"), "i", Resources(), **fields_).is_open is is_open
