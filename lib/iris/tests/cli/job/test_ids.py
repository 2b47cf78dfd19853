"""Jobs and tasks are found by what people type; many names together, and each by itself where one is elsewhere."""

import pytest

from iris.cli.job.ids import find_job, find_job_or_task, find_jobs
from iris.client import JobStatus
from rigging.errors import Denied, NotFound
from support.iris.cli import Client, job


def jobs(*ids: str, replicas: int = 3, prefix: str = "/ann") -> Client:
    return Client(*(job(job_id, replicas=replicas) for job_id in ids), prefix=prefix)


@pytest.mark.parametrize(
    ("text", "prefix", "found"),
    [
        ("/ann/train", "/ann", "/ann/train"),
        ("train", "/ann", "/ann/train"),
        ("ann/train", "/ann", "/ann/train"),
        ("/ann/train/", "/ann", "/ann/train"),
        ("eval", "/ann/parent", "/ann/parent/eval"),  # inside a job its children come first
        ("train", "/ann/parent", "/ann/train"),
    ],
)
def test_a_job_is_found_with_and_without_its_user(text: str, prefix: str, found: str) -> None:
    client = jobs("/ann/train", "/bob/train", "/ann/parent/eval", "/ann/eval", prefix=prefix)
    assert find_job(client, text).job_id == found


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("trainning", "did you mean /ann/training"),
        ("/ann/trian", "did you mean /ann/training"),
        ("train", "did you mean /ann/training or /ann/training-2?"),
        ("/ann", "`iris job list` shows what there is"),
        ("bad name", "`iris job list` shows what there is"),
        *((text, "") for text in ("training/3", "training/²", "other/0", "/0", "0")),  # a number is no task there
    ],
)
def test_an_unknown_job_is_named_with_what_is_near(text: str, hint: str) -> None:
    with pytest.raises(NotFound, match=f"^no job '{text}'; ") as unknown:
        find_job(jobs("/ann/training", "/ann/training-2"), text)
    assert hint in str(unknown.value)


def test_tasks_are_found_by_index() -> None:
    client = jobs("/ann/train")
    assert find_job_or_task(client, "train/2")[1] == "/ann/train/2"
    assert find_job_or_task(client, "train")[1] == "/ann/train"
    with pytest.raises(NotFound, match="no task 3; its tasks are 0 to 2"):
        find_job_or_task(client, "/ann/train/3")


@pytest.mark.parametrize("text", ["/ann/train/2", "train/2", "ann/train/02", "train/2/"])
def test_a_task_is_no_job_and_says_which_its_job_is(text: str) -> None:
    with pytest.raises(NotFound) as told:
        find_job(jobs("/ann/train"), text)
    assert str(told.value) == (
        f"{text!r} is a task; name its job, /ann/train (`iris job logs /ann/train/2` shows the task's output)"
    )


def test_names_that_are_right_cost_one_call_together_and_others_are_looked_for_by_themselves() -> None:
    client = jobs("/ann/a", "/bob/b")
    assert [status.job_id for status in find_jobs(client, ["a", "/bob/b", "a"])[0]] == ["/ann/a", "/bob/b"]
    assert client.asked == [{"poll": ["/ann/a", "/bob/b"]}]
    client.asked.clear()
    assert [status.job_id for status in find_jobs(client, ["a"])[0]] == ["/ann/a"]
    assert client.asked == []
    found, denied, wrong = find_jobs(client, ["a", "nothing", "bob/b", "a", "nor this"])
    assert ([status.job_id for status in found], denied) == (["/ann/a", "/bob/b"], [])
    assert [str(error).partition(";")[0] for error in wrong] == ["no job 'nothing'", "no job 'nor this'"]


def test_what_may_not_be_read_is_given_back_to_be_refused_by_what_is_wanted() -> None:
    class Refusing(Client):
        def status(self, job_id: str) -> JobStatus:
            raise Denied(f"user ann may not read jobs of {job_id}")

    assert find_jobs(Refusing(), ["/bob/secret/"]) == ([], ["/bob/secret"], [])
    assert [type(error) for error in find_jobs(Refusing(), ["secret"])[2]] == [Denied]
