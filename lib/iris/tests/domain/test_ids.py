import pytest

from iris.domain import ids
from iris.domain.ids import JobId, TaskId
from rigging.errors import InvalidRequest


@pytest.mark.parametrize("text", ["/ann/train", "/ann/train/eval", "/a.b@c/x=1+2-3_4", "/ann/0a"])
def test_job_ids_pass(text):
    assert ids.validate_job_id(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("train", "the form is /user/name"),
        ("/ann", "the form is /user/name"),
        ("ann/train", "the form is /user/name"),
        ("/ann//train", "'' is not a valid name of a job or user"),
        ("/ann/a b", "'a b' is not a valid name of a job or user"),
        ("/ann/train/7", "not digits alone"),
        ("/7/train", "not digits alone"),
        ("/ann/..", "'..' is not a valid name of a job or user"),
        ("/ann/" + "x" * 129, "1 to 128"),
        ("/ann/a\n", "is not a valid name of a job or user"),
        ("/" + "/".join(["a"] * 70), "has 70 parts; at most 63 may be"),
    ],
)
def test_bad_job_ids_say_what_is_wrong(text, reason):
    with pytest.raises(InvalidRequest) as caught:
        ids.validate_job_id(text)
    assert reason in str(caught.value)


def test_a_task_id_comes_apart_as_it_was_put_together():
    task = ids.task_id(JobId("/ann/train/eval"), 12)
    assert task == "/ann/train/eval/12"
    assert ids.parse_task_id(task) == ("/ann/train/eval", 12)
    attempt = ids.attempt_id(TaskId(task), 3)
    assert attempt == "/ann/train/eval/12:3"
    assert ids.parse_attempt_id(attempt) == (task, 3)


@pytest.mark.parametrize(
    ("parse", "text", "what"),
    [
        *((ids.parse_task_id, text, "a task") for text in ("/ann/train", "/ann/3", "/a/b/-1", "/a/b/x", "/a/b/²")),
        *((ids.parse_attempt_id, text, "an attempt") for text in ("/a/b/0", "/a/b/0:", "/a/b/0:-1", ":1")),
    ],
)
def test_what_is_no_id_is_refused(parse, text, what):
    with pytest.raises(InvalidRequest, match=f"is not {what} id"):
        parse(text)


def test_family():
    assert ids.parent_of(JobId("/ann/train")) is None
    assert ids.parent_of(JobId("/ann/train/eval")) == "/ann/train"
    assert ids.user_of(JobId("/ann/train/eval")) == "ann"
    assert ids.is_below(JobId("/ann/train/eval"), JobId("/ann/train"))
    assert not ids.is_below(JobId("/ann/train2"), JobId("/ann/train"))
    assert not ids.is_below(JobId("/ann/train"), JobId("/ann/train"))

    assert ids.is_task_id("/ann/train/0")
    assert not ids.is_task_id("/ann/train")
    assert not ids.is_task_id("/ann/0")
