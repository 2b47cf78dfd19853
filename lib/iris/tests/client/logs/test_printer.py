"""What a followed job's output looks like: lines of several tasks, notes, and lines that are not finished."""

import io
from collections.abc import Callable

import pytest

from iris.client.logs.printer import LogPrinter
from iris.client.types import LogLine


class SessionStream(io.BytesIO):
    """Counts how much of it was flushed."""

    seen = b""

    def flush(self) -> None:
        self.seen = self.getvalue()


class Screen:
    def __init__(self, prefix_own: bool = False, on_retry: Callable[[str, int], None] | None = None) -> None:
        self.out, self.err = SessionStream(), SessionStream()
        self.printer = LogPrinter("/u/j", prefix_own=prefix_own, on_retry=on_retry, out=self.out, err=self.err)

    def write(self, task: str, data: bytes, *, stderr: bool = False, attempt: int = 0, **kind: bool) -> None:
        """A line, or with `partial` a piece of one, or a `note`."""
        self.printer.write(LogLine(f"/u/j/{task}", attempt, stderr, 0, data, **kind))


def test_each_line_is_seen_when_it_is_written() -> None:
    screen = Screen()
    screen.write("0", b"one")
    assert screen.out.seen == b"one\n"
    screen.write("0", b"half", partial=True)
    assert screen.out.seen == b"one\nhalf"
    screen.write("c/0", b"child", stderr=True)
    assert screen.err.seen == b"[c/0] child\n"


def test_a_childs_line_begins_on_a_line_of_its_own_on_its_own_stream() -> None:
    screen = Screen()
    screen.write("0", b"half", partial=True)
    screen.write("c/0", b"x", stderr=True)
    screen.write("c/0", b"y")
    screen.write("c/0", b"z")
    screen.write("0", b"\xff 10%\r", partial=True)
    screen.write("0", b" 100%")
    screen.write("0", b"no newline at the end", partial=True)
    screen.printer.finish()
    assert screen.out.getvalue() == b"half\n[c/0] y\n[c/0] z\n\xff 10%\r 100%\nno newline at the end"
    assert screen.err.getvalue() == b"[c/0] x\n"


def test_pieces_of_a_line_are_put_together_by_task_attempt_and_stream() -> None:
    screen = Screen(prefix_own=True)
    for piece in (b"a", b"b"):
        screen.write("0", piece, partial=True)
        screen.write("0", piece.upper(), partial=True, stderr=True)
        screen.write("0", piece * 2, partial=True, attempt=1)
    screen.write("1", b"other")
    screen.write("0", b"!")
    screen.write("0", b"?", stderr=True)
    assert screen.out.getvalue() == b"[1] other\n[0] ab!\n"
    assert screen.err.getvalue() == b"[0] AB?\n"
    screen.printer.finish()
    assert screen.out.getvalue() == b"[1] other\n[0] ab!\n[0] aabb\n"
    screen.printer.finish()
    assert screen.out.getvalue() == b"[1] other\n[0] ab!\n[0] aabb\n", "once"


def test_the_followed_jobs_own_tasks_are_named_only_when_it_has_several() -> None:
    for several, shown in ((False, b"x\n"), (True, b"[0] x\n")):
        screen = Screen(prefix_own=several)
        screen.write("0", b"x")
        assert screen.out.getvalue() == shown


def test_notes_go_where_iris_speaks_in_one_printable_line() -> None:
    screen = Screen()
    screen.write("0", b"half", partial=True)
    screen.write("0", b"5 bytes\nlost\x1b[0m", note=True)
    assert screen.out.getvalue() == b"half"
    [line] = screen.err.getvalue().splitlines()
    assert line.startswith(b"iris: task /u/j/0: 5 bytes")
    assert b"\x1b" not in line
    screen.write("0", b"err", stderr=True, partial=True)
    screen.write("0", b"again", note=True)
    screen.write("0", b"more", note=True)
    assert screen.err.getvalue().endswith(b"err\niris: task /u/j/0: again\niris: task /u/j/0: more\n")


def test_a_new_attempt_is_told_once_a_task_and_never_backwards() -> None:
    told: list[tuple[str, int]] = []
    screen = Screen(on_retry=lambda task, attempt: told.append((task, attempt)))
    for task, attempt in (("0", 1), ("0", 1), ("0", 0), ("0", 3), ("1", 0), ("1", 1), ("0", 3)):
        screen.write(task, b"x", attempt=attempt)
    assert told == [("/u/j/0", 3), ("/u/j/1", 1)], "the first attempt that is seen is no retry"
    Screen().write("0", b"x", attempt=5)


def test_without_streams_of_its_own_it_writes_to_the_process(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = LogPrinter("/u/j", prefix_own=False)
    printer.write(LogLine("/u/j/0", 0, False, 0, b"out"))
    printer.write(LogLine("/u/j/0", 0, True, 0, b"err"))
    written = capsysbinary.readouterr()
    assert (written.out, written.err) == (b"out\n", b"err\n")
