"""What a task is told in its variables, and who submits."""

import os
from unittest import mock

import pytest

from iris.client.job_env import JobEnv, job_env
from iris.user_name import default_user
from rigging.errors import InvalidRequest

LEAST = {"IRIS_JOB_ID": "/u/j", "IRIS_CONTROLLER_ADDRESS": "h:1"}


def test_outside_of_a_job_there_is_none() -> None:
    for missing in LEAST:
        assert job_env({name: value for name, value in LEAST.items() if name != missing}) is None
        assert job_env({**LEAST, missing: ""}) is None


def test_what_is_not_said_is_the_first_attempt_of_the_first_task() -> None:
    assert job_env(LEAST) == JobEnv("h:1", "/u/j", "/u/j/0", "/u/j/0:0", "", "")


def test_everything_that_is_said() -> None:
    found = job_env(
        {
            **LEAST, "IRIS_TASK_ID": "/u/j/3", "IRIS_ATTEMPT_ID": "/u/j/3:2", "IRIS_WORKER_ID": "w",
            "IRIS_TOKEN_FILE": "/t", "IRIS_WORK_DIR": "/w", "IRIS_BUNDLE_DIGEST": "d", "IRIS_NUM_TASKS": "7",
            "IRIS_EXTRAS": '["a", "b"]', "IRIS_PIP_PACKAGES": '["p"]', "IRIS_PORT_HTTP": "80", "IRIS_PORT_X": "-1",
            "IRIS_WORKSPACE_DIR": "/ws",
        }
    )  # fmt: skip
    assert found is not None
    assert found == JobEnv(
        "h:1", "/u/j", "/u/j/3", "/u/j/3:2", "w", "/t", "/w", "d", 7, ("a", "b"), ("p",), {"http": 80}, "/ws"
    )
    assert found.task_attempt == 2


@pytest.mark.parametrize("text", ["a", "{}", '"a"', "[1]", '["a", 1]'])
def test_damaged_lists_are_named(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"IRIS_EXTRAS=.* is not a JSON list of strings"):
        job_env({**LEAST, "IRIS_EXTRAS": text})
    assert job_env({**LEAST, "IRIS_EXTRAS": "[]"}) == job_env(LEAST)


@pytest.mark.parametrize(
    ("login", "user"),
    [
        ("ann", "ann"), ("Ann.B_c@d+e=f-9", "Ann.B_c@d+e=f-9"), ("ann b/c", "ann-b-c"), ("corp\\ann", "corp-ann"),
        ("123", "uid-123"),
        ("", f"uid-{os.getuid()}"), ("..", f"uid-{os.getuid()}"), ("--", f"uid-{os.getuid()}"), ("x" * 200, "x" * 128),
    ],
)  # fmt: skip
def test_a_login_name_as_it_may_stand_in_a_job_id(login: str, user: str) -> None:
    assert default_user(lambda: login) == user


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no name"), ImportError("pwd")])
def test_a_user_without_a_name_has_a_number(error: Exception) -> None:
    with mock.patch("getpass.getuser", side_effect=error):
        assert default_user() == f"uid-{os.getuid()}"
