import io
import sys
from typing import Any

import pytest

from marin.execution.report.events import RunEnded, RunStarted, StepEnd, StepEnded, StepRetrying, StepStarted
from marin.execution.version.differences import WHAT_TO_TYPE
from marin.execution.views.live import LiveView


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")


def ended(name: str, status: StepEnd = StepEnd.SUCCEEDED, **fields: Any) -> StepEnded:
    return StepEnded(0, name, f"/p/{name}", status, **fields)


# Never "erase all below", which tmux takes at the top of the screen for a reason to keep what was there.
ERASE_THREE = "\x1b[3F" + 3 * "\x1b[2K\x1b[B" + "\x1b[3F"


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_view_is_erased_before_anything_is_written_and_drawn_below_it() -> None:
    terminal = Tty()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 160.0)
    for name in "ab":
        view.on_event(StepStarted(100, name, f"/p/{name}"))
    view.draw()
    drawn = terminal.getvalue()
    assert drawn.count("\n") == 3
    view.draw()
    assert terminal.getvalue() == drawn + ERASE_THREE + drawn
    terminal.truncate(0)
    terminal.seek(0)
    view.write_above("hello\n")
    view.write_above("again\n")
    assert terminal.getvalue() == f"{ERASE_THREE}hello\nagain\n"
    view.write_above("half")
    before = terminal.getvalue()
    view.draw()
    assert terminal.getvalue() == before, "an unfinished line stays whole"
    view.write_above("")
    view.draw()
    assert terminal.getvalue() == before
    view.write_above(" line\n")
    view.draw()
    assert terminal.getvalue().endswith(drawn)


def test_what_is_said_while_somebody_answers_comes_after_the_answer() -> None:
    terminal = Tty()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 160.0)
    view.on_event(StepStarted(100, "s0", "/p/0"))
    with view.answering("(Pdb) "):
        view.write_above("one\n")
        view.draw()
        with view.answering("more? "):
            view.write_above("two\n")
        assert terminal.getvalue() == "(Pdb) "
    assert terminal.getvalue() == "(Pdb) one\nmore? two\n"
    view.draw()
    assert "s0" in terminal.getvalue()


def test_an_attempt_that_failed_stays_on_the_terminal() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 160.0)
    view.on_event(StepRetrying(160.0, "a", "/p/a", 1, "failed", "ConnectionError: hiccup", 5.0))
    assert terminal.getvalue() == "a: attempt 1 failed, again in 5 s -> /p/a: ConnectionError: hiccup\n"


def test_only_ends_that_are_news_scroll_by_and_a_run_of_a_program_ends_with_its_steps() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 160.0, summary=True)
    view.on_event(RunStarted(100, 3))
    view.on_event(ended("a", seconds=1))
    view.on_event(ended("b", StepEnd.CACHED))
    view.on_event(ended("c", StepEnd.CACHED, differences=("k",)))
    view.on_event(ended("d", StepEnd.FAILED, error="bad"))
    view.on_event(RunEnded(165, 65, error="KeyboardInterrupt"))
    lines = terminal.getvalue().splitlines()
    assert "a: done in 1.00 s -> /p/a" in lines
    assert not any("b: already done" in line for line in lines)
    assert any(line.startswith("c: already done -> /p/c (made with") for line in lines)
    assert lines[-6:] == [
        "[1:05] 4/3 steps: 0 running, 0 waiting, 1 done, 2 cached, 1 failed (ended by KeyboardInterrupt)",
        "a  SUCCESS (ran 1.00s)  /p/a", "c  SUCCESS (already done, made with other k)  /p/c", "d  FAILED (bad)  /p/d",
        "and 1 whose output already existed", WHAT_TO_TYPE,
    ]  # fmt: skip


class Plain(Tty):
    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("keyboard", "screen", "is_replaced"),
    [(Tty(), Tty(), True), (Plain(), Tty(), False), (Tty(), Plain(), False), (None, Tty(), False)],
)
def test_only_who_types_on_the_terminal_of_the_view_has_it_to_answer(
    monkeypatch: pytest.MonkeyPatch, keyboard: Tty | None, screen: Tty, is_replaced: bool
) -> None:
    """Else what is said while a step reads a pipe would be held back until that ends."""
    for name, stream in (("stdin", keyboard), ("stdout", screen), ("stderr", screen)):
        monkeypatch.setattr(sys, name, stream)
    view = LiveView(Tty(), size=lambda: (80, 24), now=lambda: 160.0)
    view.on_event(RunStarted(100.0, 0))
    during = sys.stdin
    view.on_event(RunEnded(101.0, 1.0))
    assert (during is not keyboard) == is_replaced
    assert sys.stdin is keyboard
