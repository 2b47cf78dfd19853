"""What `iris job` shows, from statuses to lines; and how a job is found by what people type."""

import pytest

from iris.cli.job.commands import in_tree_order, tasks_text
from iris.cli.job.follow import describe_end, exit_code_of_job
from iris.cli.job.ids import find_job, find_job_or_task
from iris.client import JobStatus
from iris.cluster.types import JobState, TaskState
from rigging.errors import NotFound


def status(job_id: str, state: JobState = JobState.RUNNING, **fields) -> JobStatus:
    parent = job_id.rpartition("/")[0]
    return JobStatus(job_id, state, parent_id=parent if parent.count("/") > 1 else "", **fields)


class Jobs:
    """The client's side of looking up jobs."""

    def __init__(self, *ids: str, replicas: int = 1, prefix: str = "/ann") -> None:
        self._jobs = {job_id: status(job_id, replicas=replicas) for job_id in ids}
        self._prefix = prefix

    def full_name_prefix(self) -> str:
        return self._prefix

    def status(self, job_id: str) -> JobStatus:
        if job_id not in self._jobs:
            raise NotFound(f"no job {job_id}")
        return self._jobs[job_id]

    def list_jobs(self, limit: int) -> list[JobStatus]:
        return list(self._jobs.values())[:limit]


@pytest.mark.parametrize("text", ["/ann/train", "train", "ann/train", "/ann/train/"])
def test_ids_with_and_without_the_user(text):
    assert find_job(Jobs("/ann/train", "/bob/train"), text).job_id == "/ann/train"


def test_names_inside_a_job_mean_its_children_first():
    jobs = Jobs("/ann/parent/eval", "/ann/eval", "/ann/other", prefix="/ann/parent")
    assert find_job(jobs, "eval").job_id == "/ann/parent/eval"
    assert find_job(jobs, "other").job_id == "/ann/other"


@pytest.mark.parametrize("text", ["trainning", "/ann/trian", "train", "/ann", "bad name"])
def test_an_unknown_job_is_named_with_what_is_near(text):
    with pytest.raises(NotFound) as unknown:
        find_job(Jobs("/ann/training", "/ann/training-2"), text)
    assert repr(text) in str(unknown.value)
    assert "/ann/training" in str(unknown.value) or text in ("/ann", "bad name")


def test_tasks_are_found_by_index():
    jobs = Jobs("/ann/train", replicas=3)
    assert find_job_or_task(jobs, "train/2")[1] == "/ann/train/2"
    assert find_job_or_task(jobs, "train")[1] == "/ann/train"
    with pytest.raises(NotFound, match="no task 3; its tasks are 0 to 2"):
        find_job_or_task(jobs, "/ann/train/3")


def test_children_stand_below_their_parents_oldest_first():
    jobs = [
        status("/a/new", submitted_at_ms=9),
        status("/a/old/c2", submitted_at_ms=5),
        status("/a/old/c1/deep", submitted_at_ms=4),
        status("/a/old/c1", submitted_at_ms=3),
        status("/a/old", submitted_at_ms=1),
        status("/a/gone/child", submitted_at_ms=0),
    ]
    assert [(depth, job.job_id) for depth, job in in_tree_order(jobs)] == [
        (0, "/a/new"),
        (0, "/a/old"),
        (1, "/a/old/c1"),
        (2, "/a/old/c1/deep"),
        (1, "/a/old/c2"),
        (0, "/a/gone/child"),
    ]


def test_task_counts_are_spelled_out_only_when_they_differ():
    assert tasks_text(status("/a/b", replicas=4, task_counts={TaskState.RUNNING: 4})) == "4"
    mixed = {TaskState.RUNNING: 3, TaskState.PENDING: 1}
    assert tasks_text(status("/a/b", replicas=4, task_counts=mixed)) == "3 running, 1 pending"
    assert tasks_text(status("/a/b", replicas=4, task_counts={TaskState.RUNNING: 4, TaskState.FAILED: 0})) == "4"
    assert tasks_text(status("/a/b", replicas=4, task_counts={TaskState.PENDING: 4})) == "4 pending"
    assert tasks_text(status("/a/b", replicas=4)) == "4", "how they are is not known"


@pytest.mark.parametrize(
    ("state", "fields", "code"),
    [
        (JobState.SUCCEEDED, {}, 0),
        (JobState.FAILED, {"exit_code": 37}, 37),
        (JobState.FAILED, {"exit_signal": 11}, 139),
        (JobState.FAILED, {}, 1),
        (JobState.KILLED, {"exit_signal": 15}, 143),
        (JobState.UNSCHEDULABLE, {}, 1),
    ],
)
def test_a_job_ends_the_command_with_its_own_code(state, fields, code):
    assert exit_code_of_job(status("/a/b", state, **fields)) == code


def test_the_last_line_says_how_it_ended_why_and_where_the_output_is():
    failed = status(
        "/a/b",
        JobState.FAILED,
        error="task 2 failed: exit code 3",
        replicas=4,
        deciding_task_id="/a/b/2",
        started_at_ms=1000,
        finished_at_ms=4200,
    )
    assert describe_end(failed) == (
        "job /a/b failed after 3.2 s: task 2 failed: exit code 3 (task /a/b/2); its output: `iris job logs /a/b`"
    )
    done = status("/a/b", JobState.SUCCEEDED, started_at_ms=1000, finished_at_ms=4200)
    assert describe_end(done) == "job /a/b succeeded in 3.2 s"


def test_a_success_in_spite_of_failed_tasks_says_how_many_failed():
    counts = {TaskState.SUCCEEDED: 2, TaskState.FAILED: 1}
    done = status("/a/b", JobState.SUCCEEDED, started_at_ms=1000, finished_at_ms=4200, replicas=3, task_counts=counts)
    assert describe_end(done) == ("job /a/b succeeded in 3.2 s, though 1 of 3 tasks failed: `iris job summary /a/b`")


@pytest.mark.parametrize("text", ["/ann/train/2", "train/2", "ann/train/02", "train/2/"])
def test_a_task_is_no_job_and_says_which_its_job_is(text):
    with pytest.raises(NotFound) as told:
        find_job(Jobs("/ann/train", replicas=3), text)
    assert str(told.value) == (
        f"{text!r} is a task; name its job, /ann/train (`iris job logs /ann/train/2` shows the task's output)"
    )


@pytest.mark.parametrize("text", ["train/3", "train/²", "other/0", "/0", "0"])
def test_a_number_is_no_task_where_no_job_has_it(text):
    with pytest.raises(NotFound, match=f"^no job '{text}'"):
        find_job(Jobs("/ann/train", replicas=3), text)
