"""What reaches a terminal: nothing of others that it would obey, and lines that fit it."""

import contextlib
import io
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


class Context(CliContext):
    """Commands reach a cluster of hostile texts."""

    def __init__(self, reached=None):
        super().__init__()
        self._reached = reached or HostileClient()

    @contextlib.contextmanager
    def client(self, workspace=None):
        yield self._reached


class Terminal(io.StringIO):
    def isatty(self):
        return True


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
def test_nothing_that_a_terminal_obeys_is_written(words, capsys):
    run(words, Context())
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


def test_csv_is_data_for_programs_and_escaped_only_on_a_terminal(capsys):
    run(["query", "SELECT 1", "-f", "csv"], Context())
    assert HOSTILE in capsys.readouterr().out
    with contextlib.redirect_stdout(Terminal()) as terminal:
        run(["query", "SELECT 1", "-f", "csv"], Context())
    assert ESCAPED in terminal.getvalue()


def test_no_command_writes_past_the_one_place():
    for path in Path(iris.cli.__file__).parent.rglob("*.py"):
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


class Listing(HostileClient):
    """A cluster with one job."""

    def __init__(self, job):
        self._job = job

    def list_jobs(self, **query):
        return [self._job]


def test_a_list_fits_the_terminal_and_keeps_command_and_reason_apart(monkeypatch):
    job = JobStatus(
        "/ann/train", JobState.PENDING, command="python -m trainer " + "--flag " * 30, pending_reason="needs 8 " * 20
    )
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.redirect_stdout(Terminal()) as terminal:
        assert run(["job", "list"], Context(Listing(job))) == 0
    header, line, note = terminal.getvalue().splitlines()
    assert header.split()[-1] == "COMMAND"
    assert "python -m tra" in line
    assert note.startswith("    waits: needs 8 needs 8 ")
    assert max(map(len, (header, line, note))) <= 80
    assert line.endswith("...")
    assert note.endswith("...")


def test_off_a_terminal_nothing_is_cut(capsys):
    job = JobStatus("/ann/a", JobState.FAILED, command="x" * 500, error="e" * 500)
    run(["job", "list"], Context(Listing(job)))
    _, line, note = capsys.readouterr().out.splitlines()
    assert line.endswith("x" * 500)
    assert note == "    " + "e" * 500


def test_wide_characters_take_two_columns():
    assert table(("a", "b"), [["日本", "x"], ["y", "z"]]) == ["A     B", "日本  x", "y     z"]
    assert table(("a",), [["日本" * 20]], width=20)[1] == "日本日本日本日本..."


@pytest.mark.parametrize(
    ("width", "line", "note"),
    [
        (None, "ab  0123456789012345678901234567890", "    0123456789012345678901234567890"),
        (35, "ab  0123456789012345678901234567890", "    0123456789012345678901234567890"),
        (34, "ab  012345678901234567890123456...", "    012345678901234567890123456..."),
        (20, "ab  0123456789012...", "    0123456789012..."),
        (19, "ab  0123456789012...", "    012345678901..."),  # the last column keeps 16
        (3, "ab  0123456789012...", "    ..."),
    ],
)
def test_the_last_column_and_the_notes_are_cut_to_the_width(width, line, note):
    text = "0123456789012345678901234567890"
    assert table(("x", "y"), [["ab", text]], [text], width) == ["X   Y", line, note]


def test_only_rows_with_a_note_have_one_below():
    assert table(("x",), [["a"], ["b"], ["c"]], ["", "why b", ""]) == ["X", "a", "b", "    why b", "c"]
    assert table(("a", "b", "c"), [["1", "", "3"]]) == ["A  B  C", "1     3"]


def test_a_text_is_never_cut_within_a_wide_character_and_marks_take_no_room():
    assert table(("a",), [["日" * 20]], width=17)[1] == "日" * 7 + "..."
    assert table(("a",), [["e\u0301" * 18]], width=18)[1] == "e\u0301" * 18
    assert table(("a", "b"), [["ﾊe\u0301", "x"]])[0] == "A   B"


def test_a_list_of_nothing_is_nothing_for_people_and_an_empty_list_for_programs(capsys):
    TextOutput().rows(("a",), [], [])
    assert capsys.readouterr().out == ""
    JsonOutput().rows(("a",), [], [])
    assert capsys.readouterr().out == "[]\n"
    JsonOutput().rows(("a",), [["x"]], [{"a": "ä"}], ["note"])
    assert capsys.readouterr().out == '[\n {\n  "a": "\\u00e4"\n }\n]\n'


def test_json_is_as_it_is_or_in_ascii(capsys):
    output.echo_json({"a": "ä"}, ensure_ascii=False)
    assert json.loads(capsys.readouterr().out) == {"a": "ä"}
    output.echo_json({"a": "ä"}, ensure_ascii=False)
    assert "ä" in capsys.readouterr().out


def test_the_width_is_that_of_a_terminal_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "77")
    with contextlib.redirect_stdout(io.StringIO()):
        assert output.terminal_width() is None
    with contextlib.redirect_stdout(Terminal()):
        assert output.terminal_width() == 77


def test_a_closed_stderr_ends_nothing():
    tried = []

    class Closed:
        def write(self, text):
            tried.append(text)
            raise ValueError("I/O operation on closed file")

    with contextlib.redirect_stderr(Closed()):
        say("anything")
    assert tried


def test_what_is_said_is_seen_at_once():
    class Stream:
        def __init__(self):
            self.seen, self.held = "", ""

        def write(self, text):
            self.held += text

        def flush(self):
            self.seen, self.held = self.seen + self.held, ""

    stream = Stream()
    with contextlib.redirect_stderr(stream):
        say("hello")
    assert stream.seen == "iris: hello\n"


def test_what_is_over_is_not_told_as_slow_later():
    timers = []

    class Timer:
        daemon = False

        def __init__(self, after, told, words):
            self.given, self.state = (after, told, words), "new"
            timers.append(self)

        def start(self):
            assert self.daemon, "an interrupted command must not wait for it"
            self.state = "started"

        def cancel(self):
            self.state = "cancelled"

    with output.told_if_slow("waiting", make_timer=Timer):
        assert timers[0].state == "started"
    with pytest.raises(ZeroDivisionError), output.told_if_slow("longer", after=2.0, make_timer=Timer):
        1 / 0  # noqa: B018
    assert [timer.given for timer in timers] == [(1.0, say, ("waiting",)), (2.0, say, ("longer",))]
    assert [timer.state for timer in timers] == ["cancelled"] * 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (59.95, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (86_400, "24 h 0 min"),
        (7384, "2 h 3 min"),
    ],
)
def test_durations_at_their_edges(seconds, text):
    assert output.duration(seconds) == text


def test_a_moment_has_a_date_once_a_day_has_passed():
    at, day = 1_000_000_000_000, 86_400_000
    assert re.fullmatch(r"\d\d:\d\d:\d\d", output.moment(at, at + day - 1))
    assert re.fullmatch(r"2001-09-\d\d \d\d:\d\d", output.moment(at, at + day))
