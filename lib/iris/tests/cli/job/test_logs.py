import time
from datetime import datetime
from typing import Any

import pytest

from iris.client import LogLine, TaskStatus
from iris.cluster.types import TaskState
from support.iris.cli import Client, Iris, job


def tasks(job_id: str, count: int, attempt: int = 0, causes: tuple[str, ...] = ()) -> list[TaskStatus]:
    return [TaskStatus(f"{job_id}/{index}", TaskState.RUNNING, attempt, causes=causes) for index in range(count)]


@pytest.fixture
def client() -> Client:
    client = Client(job("/ann/a", replicas=3))
    client.tasks = tasks("/ann/a", 3)
    return client


NOW_S = 1_777_816_900


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (
            "a",
            {
                "name": "/ann/a", "max_lines": 0, "from_start": True, "follow": False, "include_children": True,
                "since": 0, "grep": "", "level": "", "until": 0, "attempt": -1,
            },
        ),
        ("a/1", {"name": "/ann/a/1", "include_children": True}),
        ("a -f --no-children", {"follow": True, "include_children": False}),
        ("a --max-lines 5", {"max_lines": 5, "from_start": False}),
        ("a --max-lines 5 --no-tail", {"max_lines": 5, "from_start": True}),
        ("a --grep loss=.*5 --level ERROR", {"grep": "loss=.*5", "level": "error"}),
        ("a --task 2 --attempt 0", {"name": "/ann/a/2", "attempt": 0, "include_children": False}),
        ("a --since 2026-05-03T14:00:00+00:00", {"since": 1777816800.0}),
        ("a --until 2026-05-03T14:00", {"until": datetime(2026, 5, 3, 14).timestamp()}),
        ("a --since 2026-05-03T14:00:00+00:00 --since-ms 1777816801000", {"since": 1777816801.0}),
        ("a --since-seconds 0", {"since": NOW_S}),
        ("a --since-seconds 10", {"since": NOW_S - 10}),
    ],
)  # fmt: skip
def test_what_is_asked_for(words: str, options: dict[str, Any], iris: Iris, client: Client) -> None:
    assert iris("job", "logs", *words.split(), now_ms=NOW_S * 1000)[::2] == (0, "")
    assert {name: client.asked[-1][name] for name in options} == options


@pytest.mark.parametrize(("word", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("2d", 172_800)])
def test_so_long_ago(word: str, seconds: float, iris: Iris, client: Client) -> None:
    begin = time.time()
    assert iris("job", "logs", "a", "--since", word)[::2] == (0, "")
    assert begin - seconds <= client.asked[-1]["since"] <= time.time() - seconds


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("a", "--since", "yesterday"), 2,
            "'yesterday' is not a time; use e.g. 2026-05-03T14:00, or how long ago: 90s"),
        (("a", "--until", "10"), 2, "'10' is not a time"),
        (("a", "--since", "99999999999999d"), 2, "is not a time"),
        (("a", "--grep", ""), 2, "it is empty"),
        (("a", "--attempt", "-1"), 2, "-1 is not in the range x>=0"),
        (("a", "--task", "3"), 4, "the tasks of /ann/a are 0 to 2"),
        (("a/1", "--task", "0"), 4, "the tasks of /ann/a are 0 to 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(words: tuple[str, ...], code: int, reason: str, iris: Iris) -> None:
    found, _, said = iris("job", "logs", *words)
    assert (found, reason in said) == (code, True), said


def line(text: str, attempt: int) -> LogLine:
    return LogLine("/ann/a/0", attempt, False, 0, text.encode())


@pytest.mark.parametrize(
    ("replicas", "causes", "words", "shown"),
    [
        (1, (), "a", "one\n[0, attempt 1] two\n"),
        (1, ("attempt 0: exit code 1",), "a", "[0, attempt 0] one\n[0, attempt 1] two\n"),
        (1, ("attempt 0: exit code 1",), "a --attempt 0", "one\ntwo\n"),
        (2, (), "a --attempt 0", "[0] one\n[0] two\n"),
        (2, (), "a/0 --attempt 0", "one\ntwo\n"),
    ],
)
def test_lines_of_several_tasks_and_attempts_say_which(
    replicas: int, causes: tuple[str, ...], words: str, shown: str, iris: Iris, client: Client
) -> None:
    client.jobs, client.tasks = [job("/ann/a", replicas=replicas)], tasks("/ann/a", replicas, causes=causes)
    client.lines = [line("one", 0), line("two", 1)]
    assert iris("job", "logs", *words.split())[1] == shown


@pytest.mark.parametrize(
    ("attempt", "words", "complaint"),
    [
        (0, "a --attempt 9 --no-children", "/ann/a has no attempt 9; its only attempt is 0"),
        (2, "/ann/a/1 --attempt 3", "/ann/a/1 has no attempt 3; its attempts are 0 to 2"),
        (2, "a --attempt 2", ""),
        (-1, "a --attempt 0", "/ann/a has no attempt 0; no attempt has started"),
        (-1, "-f a --attempt 0", ""),  # it may come yet
        (None, "a --attempt 4", ""),  # of a child job
        (None, "a --attempt 4 --no-children", "/ann/a has no attempt 4; its only attempt is 0"),
        (None, "a/0 --attempt 4", "/ann/a/0 has no attempt 4; its only attempt is 0"),
    ],
)
def test_an_attempt_that_there_is_not_is_told_with_those_that_there_are(
    attempt: int | None, words: str, complaint: str, iris: Iris, client: Client
) -> None:
    client.tasks = tasks("/ann/a", 3, attempt or 0)
    if attempt is None:
        client.jobs.append(job("/ann/a/child"))
        client.tasks += tasks("/ann/a/child", 1, 4)
    code, _, said = iris("job", "logs", *words.split())
    assert (code, said) == ((4, f"{complaint}\n") if complaint else (0, ""))
    assert ("name" in (client.asked or [{}])[-1]) is not bool(complaint), "nothing is read in vain"


def test_a_time_that_has_not_come_is_told(iris: Iris) -> None:
    code, _, said = iris("job", "logs", "a", "--since-ms", str(NOW_S * 1000 + 7_260_000), now_ms=NOW_S * 1000)
    assert (code, said) == (0, "the requested time is 2 h 1 min in the future, so no lines match\n")
