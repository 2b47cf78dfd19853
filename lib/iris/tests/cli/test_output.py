"""What reaches a terminal: nothing of others that it would obey, and lines that fit it."""

import contextlib
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import iris.cli
from iris.cli import output
from iris.cli.context import CliContext
from iris.cli.main import run
from iris.cli.output import JsonOutput, TextOutput, say, table
from iris.client import JobStatus, QueryResult, WorkerStatus
from iris.client.types import TaskStatus
from iris.cluster.types import JobState, TaskState
from rigging.errors import InvalidRequest

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202etxt.exe\r"
ESCAPED = r"\x1b]0;owned\x07\x9b2J\u202etxt.exe\x0d"

JOB = JobStatus("/ann/a", JobState.FAILED, command=f"echo {HOSTILE}", error=f"died of {HOSTILE}", replicas=1)
TASK = TaskStatus("/ann/a/0", TaskState.FAILED, worker_id=f"w{HOSTILE}", error=HOSTILE, causes=(f"cause {HOSTILE}",))
WORKER = WorkerStatus(f"w{HOSTILE}", True, 1, 1, 1, "", 0, 0, 0, cordon_reason=f"bad {HOSTILE}")


class HostileClient:
    """A client of a cluster in which every text is hostile."""

    operator = SimpleNamespace(cordon=lambda name, reason, drain=False: [])
    address = "h:1"

    def list_jobs(self, **query):
        return [JOB]

    def status(self, job_id):
        return JOB

    def list_tasks(self, job_id):
        return [TASK]

    def full_name_prefix(self):
        return "/ann"

    def cluster_status(self, all_workers=False):
        return SimpleNamespace(workers=(WORKER,))

    def query(self, sql, max_rows):
        if "bad" in sql:
            raise InvalidRequest(f"no such column: {HOSTILE}")
        return QueryResult((f"c{HOSTILE}",), ((f"v{HOSTILE}",),), False)


@pytest.fixture
def hostile(monkeypatch):
    @contextlib.contextmanager
    def client(self, workspace=None):
        yield HostileClient()

    monkeypatch.setattr(CliContext, "client", client)


@pytest.mark.parametrize(
    "words",
    [
        ["job", "list"],
        ["job", "list", "--json"],
        ["job", "summary", "/ann/a"],
        ["job", "summary", "/ann/a", "--json"],
        ["cluster", "worker", "list"],
        ["cluster", "worker", "list", "--json"],
        ["cluster", "worker", "cordon", f"w{HOSTILE}", "--reason", HOSTILE],
        ["query", "SELECT 1"],
        ["query", "SELECT 1", "-f", "json"],
        ["query", "bad"],
        ["-v", "query", "bad"],
        ["query", "SELECT 1", f"--{HOSTILE}"],
        [f"jo{HOSTILE}"],
        ["--controller-url", f"nonsense{HOSTILE}", "cluster", "status"],
    ],
)
def test_nothing_that_a_terminal_obeys_is_written(hostile, words, capsys):
    run(words)
    captured = capsys.readouterr()
    written = captured.out + captured.err
    assert written
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", written), ascii(written)
    if "json" in words[-1]:
        assert HOSTILE in str(next(iter(_texts(json.loads(captured.out)))))
    else:
        assert ESCAPED in written or r"\x1b]0;owned" in written


def _texts(value):
    if isinstance(value, str):
        if HOSTILE in value:
            yield value
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def test_csv_is_data_for_programs_and_escaped_only_on_a_terminal(hostile, capsys, monkeypatch):
    run(["query", "SELECT 1", "-f", "csv"])
    assert HOSTILE in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    run(["query", "SELECT 1", "-f", "csv"])
    assert ESCAPED in capsys.readouterr().out


def test_no_command_writes_past_the_one_place():
    for path in Path(iris.cli.__file__).parent.glob("*.py"):
        if path.name != "output.py":
            found = re.findall(r"click\.s?echo\(|\bprint\(|std(?:out|err)\.write\(|\.show\(\)", path.read_text())
            assert not found, f"{path.name} writes by {found}; use iris.cli.output"


def test_say_and_records_are_escaped(capsys):
    say(HOSTILE)
    TextOutput().record([HOSTILE], {})
    JsonOutput().record([], {"x": HOSTILE + "\x7f"})
    captured = capsys.readouterr()
    assert captured.err == f"iris: {ESCAPED}\n"
    assert captured.out.startswith(ESCAPED + "\n")
    assert json.loads(captured.out.partition("\n")[2]) == {"x": HOSTILE + "\x7f"}


def test_a_list_fits_the_terminal_and_keeps_command_and_reason_apart(hostile, capsys, monkeypatch):
    job = JobStatus(
        "/ann/train", JobState.PENDING, command="python -m trainer " + "--flag " * 30, pending_reason="needs 8 " * 20
    )
    monkeypatch.setattr(HostileClient, "list_jobs", lambda self, **query: [job])
    monkeypatch.setattr(output, "terminal_width", lambda: 80)
    assert run(["job", "list"]) == 0
    header, line, note = capsys.readouterr().out.splitlines()
    assert header.split()[-1] == "COMMAND"
    assert "python -m tra" in line
    assert note.startswith("    waits: needs 8 needs 8 ")
    assert max(map(len, (header, line, note))) <= 80
    assert line.endswith("...")
    assert note.endswith("...")


def test_off_a_terminal_nothing_is_cut(hostile, capsys, monkeypatch):
    job = JobStatus("/ann/a", JobState.FAILED, command="x" * 500, error="e" * 500)
    monkeypatch.setattr(HostileClient, "list_jobs", lambda self, **query: [job])
    run(["job", "list"])
    _, line, note = capsys.readouterr().out.splitlines()
    assert line.endswith("x" * 500)
    assert note == "    " + "e" * 500


def test_wide_characters_take_two_columns():
    assert table(("a", "b"), [["日本", "x"], ["y", "z"]]) == ["A     B", "日本  x", "y     z"]
    assert table(("a",), [["日本" * 20]], width=20)[1] == "日本日本日本日本..."
