"""`iris job logs`: what is asked for of the client, and how lines of several attempts are told apart."""

import io
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from click.testing import CliRunner, Result

from iris.cli.context import CliContext
from iris.cli.job.logs import logs
from iris.client import JobStatus, LogLine, TaskStatus
from iris.client.logs.printer import LogPrinter
from iris.cluster.types import JobState, TaskState
from rigging.errors import NotFound


class Client:
    def __init__(self, replicas: int = 3, causes: tuple[str, ...] = ()) -> None:
        self.asked: dict[str, Any] = {}
        self.replicas = replicas
        self.causes = causes
        self.lines: list[LogLine] = []
        self.attempt = 0
        self.children: dict[str, int] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def full_name_prefix(self) -> str:
        return "/ann"

    def status(self, job_id: str) -> JobStatus:
        if job_id != "/ann/a":
            raise NotFound(job_id)
        return JobStatus(job_id="/ann/a", state=JobState.RUNNING, replicas=self.replicas)

    def list_jobs(self, prefix: str, limit: int) -> list[JobStatus]:
        assert (prefix, limit > 0) == ("/ann/a", True)
        return [JobStatus(name, JobState.RUNNING) for name in ("/ann/a", *self.children)]

    def list_tasks(self, job_id: str) -> list[TaskStatus]:
        attempt = self.children.get(job_id, self.attempt)
        return [
            TaskStatus(task_id=f"{job_id}/{index}", state=TaskState.RUNNING, attempt=attempt, causes=self.causes)
            for index in range(self.replicas)
        ]

    def read_logs(self, name: str, **options: Any) -> Iterator[LogLine]:
        self.asked = {"name": name, **options}
        return iter(self.lines)


class Context(CliContext):
    def __init__(self, given: Client) -> None:
        super().__init__()
        self.given = given

    def client(self, *args: Any, **options: Any) -> Any:
        return self.given


def run(client: Client, *words: str) -> Result:
    return CliRunner().invoke(logs, words, obj=Context(client))


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ((), {"name": "/ann/a", "grep": "", "level": "", "until": 0, "attempt": -1, "since": 0}),
        (("--grep", "loss=.*5", "--level", "ERROR"), {"grep": "loss=.*5", "level": "error"}),
        (("--task", "2", "--attempt", "0"), {"name": "/ann/a/2", "attempt": 0, "include_children": False}),
        (("--since", "2026-05-03T14:00:00+00:00"), {"since": 1777816800.0}),
        (("--until", "2026-05-03T14:00"), {"until": datetime(2026, 5, 3, 14).timestamp()}),
        (("--since", "2026-05-03T14:00:00+00:00", "--since-ms", "1777816801000"), {"since": 1777816801.0}),
    ],
)
def test_what_is_asked_for(words: tuple[str, ...], options: dict[str, Any]) -> None:
    client = Client()
    assert run(client, "a", *words).exit_code == 0
    assert {name: client.asked[name] for name in options} == options


@pytest.mark.parametrize(("word", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("2d", 172_800)])
def test_so_long_ago(word: str, seconds: float) -> None:
    client = Client()
    begin = time.time()
    assert run(client, "a", "--since", word).exit_code == 0
    assert begin - seconds <= client.asked["since"] <= time.time() - seconds


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--since", "yesterday"), "'yesterday' is no time; give one such as 2026-05-03T14:00, or how long ago: 90s"),
        (("--until", "10"), "'10' is no time"),
        (("--since", "99999999999999d"), "is no time"),
        (("--grep", ""), "it is empty"),
        (("--attempt", "-1"), "-1 is not in the range x>=0"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], reason: str) -> None:
    result = run(Client(), "a", *words)
    assert result.exit_code == 2
    assert reason in result.output


@pytest.mark.parametrize("words", [("a", "--task", "3"), ("a/1", "--task", "0")])
def test_a_task_that_is_not_there_is_told(words: tuple[str, ...]) -> None:
    result = run(Client(), *words)
    assert isinstance(result.exception, NotFound)
    assert "the tasks of /ann/a are 0 to 2" in str(result.exception)


def line(text: str, attempt: int, task: int = 0) -> LogLine:
    return LogLine(f"/ann/a/{task}", attempt, False, 0, text.encode())


@pytest.mark.parametrize(
    ("causes", "words", "shown"),
    [
        ((), (), "one\n[0, attempt 1] two\n"),
        (("attempt 0: exit code 1",), (), "[0, attempt 0] one\n[0, attempt 1] two\n"),
        (("attempt 0: exit code 1",), ("--attempt", "0"), "one\ntwo\n"),
    ],
)
def test_lines_of_several_attempts_say_which(causes: tuple[str, ...], words: tuple[str, ...], shown: str) -> None:
    client = Client(1, causes)
    client.lines = [line("one", 0), line("two", 1)]
    assert run(client, "a", *words).stdout == shown


def test_pieces_of_a_line_stay_together_where_attempts_are_named() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    printer = LogPrinter("/ann/a", prefix_own=False, name_attempts=True, retried=True, out=out, err=err)
    for attempt in (0, 1):
        printer.write(LogLine("/ann/a/0", attempt, False, 0, b"be", partial=True))
    for attempt in (0, 1):
        printer.write(LogLine("/ann/a/0", attempt, False, 0, b"gin %d" % attempt))
    printer.write(LogLine("/ann/a/0", 1, False, 0, b"end", partial=True))
    printer.finish()
    assert out.getvalue() == b"[0, attempt 0] begin 0\n[0, attempt 1] begin 1\n[0, attempt 1] end\n"


def test_an_attempt_that_there_is_not_is_told_with_those_that_there_are() -> None:
    client = Client(replicas=2)
    found = run(client, "a", "--attempt", "9", "--no-children")
    assert isinstance(found.exception, NotFound)
    assert str(found.exception) == "/ann/a has no attempt 9; its only attempt is 0"
    assert client.asked == {}
    client.attempt = 2
    assert (
        str(run(client, "/ann/a/1", "--attempt", "3").exception) == "/ann/a/1 has no attempt 3; its attempts are 0 to 2"
    )
    assert run(client, "a", "--attempt", "2").exit_code == 0
    client.attempt = -1
    assert str(run(client, "a", "--attempt", "0").exception) == "/ann/a has no attempt 0; none has begun"
    assert run(client, "-f", "a", "--attempt", "0").exit_code == 0, "it may come yet"


def test_attempts_of_child_jobs_are_there_too() -> None:
    client = Client()
    client.children = {"/ann/a/child": 4}
    assert run(client, "a", "--attempt", "4").exit_code == 0
    assert isinstance(run(client, "a", "--attempt", "4", "--no-children").exception, NotFound)


def test_a_time_that_has_not_come_is_told() -> None:
    ahead = (time.time() + 7300) * 1000
    found = run(Client(), "a", "--since-ms", str(int(ahead)))
    assert found.exit_code == 0
    assert "what is wanted begins 2 h 1 min from now: nothing was printed since" in found.stderr
    assert "begins" not in run(Client(), "a", "--since", "10m").stderr
