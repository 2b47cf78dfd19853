"""What reaches a terminal: nothing of others that it would obey, and lines that fit it."""

import contextlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

import iris.cli
from iris.cli import output
from iris.cli.output import duration, moment, say, table
from iris.client import JobStatus, QueryResult, TaskStatus, WorkerStatus
from iris.cluster.types import JobState, TaskState
from rigging.errors import InvalidRequest
from support.iris.cli import Client, Iris, Terminal, job

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202etxt.exe\r"
ESCAPED = r"\x1b]0;owned\x07\x9b2J\u202etxt.exe\x0d"


class HostileClient(Client):
    """A client of a cluster in which every text is hostile."""

    def query(self, sql: str, max_rows: int) -> QueryResult:
        if "bad" in sql:
            raise InvalidRequest(f"no such column: {HOSTILE}")
        return QueryResult((f"c{HOSTILE}",), ((f"v{HOSTILE}",),), False)


@pytest.fixture
def client() -> Client:
    made = HostileClient(JobStatus("/ann/a", JobState.FAILED, command=f"echo {HOSTILE}", error=HOSTILE, replicas=1))
    made.tasks = [TaskStatus("/ann/a/0", TaskState.FAILED, worker_id=HOSTILE, error=HOSTILE, causes=(f"x {HOSTILE}",))]
    worker = WorkerStatus(f"w{HOSTILE}", True, 1, 1, 1, "", 0, 0, 0, cordon_reason=f"bad {HOSTILE}")
    made.cluster = SimpleNamespace(workers=(worker,))
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["job", "list"], ["job", "list", "--json"], ["job", "summary", "/ann/a"],
        ["job", "summary", "/ann/a", "--json"], ["cluster", "worker", "list"],
        ["cluster", "worker", "cordon", f"w{HOSTILE}", "--reason", HOSTILE], ["query", "SELECT 1"],
        ["query", "SELECT 1", "-f", "json"], ["query", "bad"], ["-v", "query", "bad"],
        ["query", "SELECT 1", f"--{HOSTILE}"], [f"jo{HOSTILE}"],
    ],
)  # fmt: skip
def test_nothing_that_a_terminal_obeys_is_written(words: list[str], iris: Iris) -> None:
    _, out, said = iris(*words)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out + said), ascii(out + said)
    if "json" in words[-1]:
        assert HOSTILE in str(next(_texts(json.loads(out))))
    else:
        assert r"\x1b]0;owned" in out + said


def _texts(value: object) -> Any:
    if isinstance(value, str) and HOSTILE in value:
        yield value
    elif isinstance(value, dict | list):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(item)


def test_csv_is_data_for_programs_and_escaped_only_on_a_terminal(iris: Iris) -> None:
    assert HOSTILE in iris("query", "SELECT 1", "-f", "csv")[1]
    with contextlib.redirect_stdout(Terminal()) as terminal:
        iris("query", "SELECT 1", "-f", "csv")
    assert ESCAPED in terminal.getvalue()


def test_no_command_writes_past_the_one_place() -> None:
    for path in Path(iris.cli.__file__).parent.rglob("*.py"):
        if path.name != "output.py":
            found = re.findall(r"click\.s?echo\(|\bprint\(|std(?:out|err)\.write\(|\.show\(\)", path.read_text())
            assert not found, f"{path.name} writes by {found}; use iris.cli.output"


def test_say_and_records_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    output.output(False).record([HOSTILE], {})
    output.output(True).record([], {"x": HOSTILE + "\x7f"})
    captured = capsys.readouterr()
    assert captured.err == f"iris: {ESCAPED}\n"
    assert captured.out.startswith(ESCAPED + "\n")
    assert json.loads(captured.out.partition("\n")[2]) == {"x": HOSTILE + "\x7f"}


def test_a_list_is_cut_to_the_terminal_alone(iris: Iris, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    command, reason = "python -m trainer " + "--flag " * 30, "needs 8 " * 20
    client.jobs = [job("/ann/train", JobState.PENDING, command=command, pending_reason=reason)]
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.redirect_stdout(Terminal()) as terminal:
        assert iris("job", "list")[0] == 0
        assert output.terminal_width() == 80
    header, line, note = terminal.getvalue().splitlines()
    assert header.split()[-1] == "COMMAND"
    assert "python -m tra" in line
    assert note.startswith("    waits: needs 8 needs 8 ")
    assert max(map(len, (header, line, note))) <= 80
    assert (line[-3:], note[-3:]) == ("...", "...")
    _, line, note = iris("job", "list")[1].splitlines()
    assert line.endswith(command.rstrip())
    assert note == f"    waits: {reason}"


DIGITS = "0123456789012345678901234567890"


@pytest.mark.parametrize(
    ("width", "line", "note"),
    [
        (None, f"ab  {DIGITS}", f"    {DIGITS}"),
        (35, f"ab  {DIGITS}", f"    {DIGITS}"),
        (34, "ab  012345678901234567890123456...", "    012345678901234567890123456..."),
        (20, "ab  0123456789012...", "    0123456789012..."),
        (19, "ab  0123456789012...", "    012345678901..."),  # the last column keeps 16
        (3, "ab  0123456789012...", "    ..."),
    ],
)
def test_the_last_column_and_the_notes_are_cut_to_the_width(width: int | None, line: str, note: str) -> None:
    assert table(("x", "y"), [["ab", DIGITS]], [DIGITS], width) == ["X   Y", line, note]


@pytest.mark.parametrize(
    ("columns", "rows", "notes", "lines"),
    [
        (("job", "state"), [["a", "x"], ["long", ""]], (), ["JOB   STATE", "a     x", "long"]),
        (("x",), [["a"], ["b"], ["c"]], ["", "why b", ""], ["X", "a", "b", "    why b", "c"]),
        (("a", "b", "c"), [["1", "", "3"]], (), ["A  B  C", "1     3"]),
        (("a", "b"), [["日本", "x"], ["y", "z"]], (), ["A     B", "日本  x", "y     z"]),
        (("a", "b"), [["ﾊe\u0301", "x"]], (), ["A   B", "ﾊe\u0301  x"]),
        (("a", "b"), [], (), ["A  B"]),
    ],
)
def test_tables_align(columns: tuple[str, ...], rows: list[list[str]], notes: list[str], lines: list[str]) -> None:
    assert table(columns, rows, notes) == lines


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("日本" * 20, 20, "日本日本日本日本..."), ("日" * 20, 17, "日" * 7 + "..."), ("e\u0301" * 18, 18, "e\u0301" * 18)],
)
def test_a_text_is_never_cut_within_a_wide_character_and_marks_take_no_room(text: str, width: int, shown: str) -> None:
    assert table(("a",), [[text]], width=width)[1] == shown


def test_a_list_of_nothing_is_nothing_for_people_and_empty_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    output.output(False).rows(("a",), [], [])
    assert capsys.readouterr().out == ""
    output.output(True).rows(("a",), [], [])
    assert capsys.readouterr().out == "[]\n"
    output.output(True).rows(("a",), [["x"]], [{"a": "ä"}], ["note"])
    assert capsys.readouterr().out == '[\n {\n  "a": "\\u00e4"\n }\n]\n'


def test_what_is_said_is_seen_at_once_and_a_closed_stderr_ends_nothing() -> None:
    stream = Mock()
    for stream.write.side_effect in (None, ValueError("I/O operation on closed file")):
        with contextlib.redirect_stderr(stream):
            say("hello")
    said = call.write("iris: hello\n")
    assert stream.mock_calls == [said, call.flush(), said]


def test_what_is_over_is_not_told_as_slow_later() -> None:
    make_timer = Mock()
    with output.told_if_slow("waiting", make_timer=make_timer):
        assert make_timer.mock_calls == [call(1.0, say, ("waiting",)), call().start()]
        assert make_timer().daemon is True, "an interrupted command must not wait for it"
    make_timer().cancel.assert_called_once_with()
    with pytest.raises(ZeroDivisionError), output.told_if_slow("longer", after=2.0, make_timer=make_timer):
        1 / 0  # noqa: B018
    assert make_timer.mock_calls[-3:] == [call(2.0, say, ("longer",)), call().start(), call().cancel()]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"), (0.04, "0.0 s"), (59.94, "59.9 s"), (59.95, "1 min 0 s"), (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"), (86_400, "24 h 0 min"), (7384, "2 h 3 min"),
    ],
)  # fmt: skip
def test_durations_at_their_edges(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_moment_has_a_date_once_a_day_has_passed() -> None:
    at, day = 1_000_000_000_000, 86_400_000
    assert moment(0, 5) == "-"
    assert re.fullmatch(r"\d\d:\d\d:\d\d", moment(at, at + day - 1))
    assert re.fullmatch(r"2001-09-\d\d \d\d:\d\d", moment(at, at + day))
