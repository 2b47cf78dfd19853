"""`iris task top`: what running tasks use, the busiest first."""

import contextlib
import io
import json
from typing import Any

import pytest

from iris.cli.context import CliContext
from iris.cli.main import run
from iris.cli.task.commands import show_until_interrupted
from iris.cli.usage import latest, processor_time, size, totals
from iris.client import AttemptUsage, JobStatus, TaskStatus
from iris.cluster.types import JobState, TaskState

MIB = 1 << 20


def used(name: str, **numbers: Any) -> AttemptUsage:
    return AttemptUsage(name, "w1", **numbers)


class Client:
    """A cluster with two running jobs."""

    def __init__(self) -> None:
        self.tasks = {
            "/ann/a": [
                TaskStatus("/ann/a/0", TaskState.RUNNING, 1, "w1", started_at_ms=1000, usage=(
                    used("/ann/a/0:0", cpu_seconds=99.0, memory_peak_bytes=9 * MIB),
                    used("/ann/a/0:1", cpu_seconds=1.5, cpu_cores=0.5, memory_bytes=2 * MIB, memory_peak_bytes=3 * MIB,
                         sent_bytes=5 * MIB, received_bytes=6 * MIB),
                )),
                TaskStatus("/ann/a/1", TaskState.PENDING),
            ],
            "/ann/b": [
                TaskStatus("/ann/b/0", TaskState.RUNNING, 0, "w2", usage=(used("/ann/b/0:0", cpu_cores=2.0),)),
                TaskStatus("/ann/b/1", TaskState.RUNNING, 0, "w3"),
            ],
        }  # fmt: skip
        self.asked: list[Any] = []

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None: ...

    def full_name_prefix(self) -> str:
        return "/ann"

    def list_jobs(self, **asked: Any) -> list[JobStatus]:
        self.asked.append(asked)
        return [JobStatus(name, JobState.RUNNING) for name in self.tasks]

    def list_tasks(self, name: str) -> list[TaskStatus]:
        return self.tasks[name]


class Context(CliContext):
    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client: Any = client

    def client(self) -> Any:
        return self._client

    def now_ms(self) -> int:
        return 61_000


@pytest.fixture
def client() -> Client:
    return Client()


def test_the_busiest_comes_first_and_what_is_not_measured_last(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["task", "top", "--once"], Context(client)) == 0
    header, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert header[:4] == ["TASK", "WORKER", "CORES", "CPU"]
    assert [row[0] for row in rows] == ["/ann/b/0", "/ann/a/0", "/ann/b/1"]
    assert rows[1][2:10] == ["0.50", "1.5", "s", "2", "MiB", "3", "MiB", "-"]
    assert header[-2:] == ["SENT", "RECEIVED"]
    assert rows[1][-4:] == ["5", "MiB", "6", "MiB"]
    assert rows[2][2:8] == ["-"] * 6
    assert client.asked == [{"prefix": "/ann", "states": [JobState.RUNNING], "limit": 100}], "one's own jobs"


def test_json_has_all_that_is_known(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["task", "top", "--json"], Context(client)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[1]["usage"][1]["memory_peak_bytes"] == 3 * MIB


def test_nothing_runs(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.tasks.clear()
    assert run(["task", "top", "--once"], Context(client)) == 0
    assert capsys.readouterr().err == "iris: no task is running\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_terminal", [False, True])
def test_it_is_shown_again_and_again_in_place_on_a_terminal_only(is_terminal: bool) -> None:
    looks = iter([["one"], ["two"]])

    def look() -> list[str]:
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    with (
        contextlib.redirect_stdout(Terminal() if is_terminal else io.StringIO()) as out,
        pytest.raises(KeyboardInterrupt),
    ):
        show_until_interrupted(look, 0.0)
    lines = out.getvalue()
    assert lines.replace("\x1b[H\x1b[2J", "") == "one\ntwo\n"
    assert ("\x1b" in lines) is is_terminal


def test_words_for_people(client: Client) -> None:
    (first, _), (second, third) = client.tasks["/ann/a"], client.tasks["/ann/b"]
    found = latest(first)
    assert found is not None
    assert found.attempt_id == "/ann/a/0:1", "the present attempt"
    assert latest(third) is None
    assert totals([first, second]) == "cpu 100.5 s, memory up to 9 MiB, sent at least 5 MiB, received at least 6 MiB"
    assert totals([third]) == ""
    assert [processor_time(seconds) for seconds in (0.04, 600, 90_000)] == ["0.0 s", "10 min", "25.0 h"]
    assert (size(0), size(MIB)) == ("-", "1 MiB")
