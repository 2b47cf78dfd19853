"""What follows from what is said of jobs, tasks and workers."""

from dataclasses import replace
from typing import Any

import pytest

from iris.domain.entities import NO_TASKS, Job, Task, Worker
from iris.domain.ids import JobId, TaskId, WorkerId
from iris.domain.job_spec import CommandEntrypoint, JobSpec
from iris.domain.resources import Resources
from iris.domain.states import JobState, TaskState

SPEC = JobSpec(JobId("/u/a"), CommandEntrypoint(("true",)))


def test_tasks_are_counted_by_state() -> None:
    counts = tuple(2 if number == TaskState.FAILED else 0 for number in range(len(NO_TASKS)))
    job = replace(Job(SPEC, JobState.FAILED, 5), task_counts=counts)
    assert (job.job_id, job.count(TaskState.FAILED), job.count(TaskState.PENDING)) == ("/u/a", 2, 0)
    assert job.counts == {TaskState.FAILED: 2}
    assert len(NO_TASKS) == max(TaskState) + 1
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
