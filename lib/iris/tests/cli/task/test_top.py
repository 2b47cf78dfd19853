import contextlib
import io
import json
from typing import Any

import pytest

from iris.cli.task.commands import lines, show_until_interrupted
from iris.cli.usage import latest, processor_time, size, totals
from iris.client import AttemptUsage, TaskStatus
from iris.cluster.types import JobState, TaskState
from support.iris.cli import Client, Iris, Terminal, job

MIB = 1 << 20


def used(name: str, **numbers: Any) -> AttemptUsage:
    return AttemptUsage(name, "w1", **numbers)


@pytest.fixture
def client() -> Client:
    """A cluster with two running jobs."""
    client = Client(job("/ann/a"), job("/ann/b"))
    first = used("/ann/a/0:0", cpu_seconds=99.0, memory_peak_bytes=9 * MIB)
    second = used(
        "/ann/a/0:1", cpu_seconds=1.5, cpu_cores=0.5, memory_bytes=2 * MIB, memory_peak_bytes=3 * MIB,
        memory_mean_bytes=MIB,
    )  # fmt: skip
    client.tasks = [
        TaskStatus("/ann/a/0", TaskState.RUNNING, 1, "w1", started_at_ms=1000, usage=(first, second)),
        TaskStatus("/ann/a/1", TaskState.PENDING),
        TaskStatus("/ann/b/0", TaskState.RUNNING, 0, "w2", usage=(used("/ann/b/0:0", cpu_cores=2.0),)),
        TaskStatus("/ann/b/1", TaskState.RUNNING, 0, "w3"),
    ]
    return client


def test_the_busiest_comes_first_and_what_is_not_measured_last(iris: Iris, client: Client) -> None:
    code, out, _ = iris("task", "top", "--once", now_ms=61_000)
    header, *rows = [line.split() for line in out.splitlines()]
    assert (code, header[:4]) == (0, ["TASK", "WORKER", "CORES", "CPU"])
    assert [row[0] for row in rows] == ["/ann/b/0", "/ann/a/0", "/ann/b/1"]
    assert " ".join(rows[1][2:]) == "0.50 1.5 s 2 MiB 1 MiB 3 MiB - - 1 min 0 s"
    assert rows[2][2:9] == ["-"] * 7
    assert client.asked == [{"prefix": "/ann", "states": [JobState.RUNNING], "limit": 100}], "one's own jobs"
    assert iris("task", "top", "b", "--once")[0] == 0
    assert client.asked[-1]["prefix"] == "/ann/b"
    assert json.loads(iris("task", "top", "--json")[1])[1]["usage"][1]["memory_peak_bytes"] == 3 * MIB
    client.tasks.clear()
    assert iris("task", "top", "--once") == (0, "", "no task is running\n")
    assert lines([], 0) == ["no task is running"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_it_is_shown_again_and_again_in_place_on_a_terminal_only(is_terminal: bool) -> None:
    looks = iter([["one"], ["two"]])

    def look() -> list[str]:
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    place = Terminal() if is_terminal else io.StringIO()
    with contextlib.redirect_stdout(place) as out, pytest.raises(KeyboardInterrupt):
        show_until_interrupted(look, 0.0)
    shown = out.getvalue()
    assert shown.replace("\x1b[H\x1b[2J", "") == "one\ntwo\n"
    assert ("\x1b" in shown) is is_terminal


def test_words_for_people(client: Client) -> None:
    first, _, second, third = client.tasks
    found = latest(first)
    assert found is not None
    assert found.attempt_id == "/ann/a/0:1", "the present attempt"
    assert latest(third) is None
    assert totals([first, second]) == "cpu 100.5 s, memory up to 9 MiB"
    assert totals([third]) == ""
    assert [processor_time(seconds) for seconds in (0.04, 120, 7200)] == ["0.0 s", "2 min", "2.0 h"]
    assert (size(0), size(MIB)) == ("-", "1 MiB")
