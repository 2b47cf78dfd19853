"""The live view of a run."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin.execution.report.events import (
    RunEnded,
    RunStarted,
    StepEnd,
    StepEnded,
    StepQueued,
    StepRetrying,
    StepStarted,
)
from marin.execution.report.live.view import LiveView
from marin.execution.report.run_progress import RunProgress


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal without any styles."""
    monkeypatch.setenv("TERM", "dumb")


def progress(running: int) -> RunProgress:
    found = RunProgress()
    found.take(RunStarted(100, 9))
    for number in range(running):
        found.take(StepStarted(100 + number, f"s{number}", f"/p/{number}"))
    return found


def ended(name: str, status: StepEnd = StepEnd.SUCCEEDED, **fields: Any) -> StepEnded:
    return StepEnded(0, name, f"/p/{name}", status, **fields)


def screen(text: str) -> list[str]:
    """What a terminal shows after a text with the two movements that the view uses."""
    lines = [""]
    for part in re.findall(r"\x1b\[\d+F(?:\x1b\[2K\x1b\[B)+\x1b\[\d+F|\x1b\[\d*m|\n|[^\x1b\n]+", text):
        if part == "\n":
            lines.append("")
        elif part.endswith("F"):
            up = int(part[2 : part.index("F")])
            del lines[len(lines) - 1 - up + 1 :]
            lines[-1] = ""
        elif not part.startswith("\x1b"):
            lines[-1] += part
    return lines


def test_what_is_said_goes_above_the_view() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 101.0)
    view.on_event(RunStarted(100.0, 2))
    view.on_event(StepQueued(100.0, "a", "/p/a"))
    view.on_event(StepStarted(100.0, "a", "/p/a"))
    view.draw()
    view.write_above("a program's line\n")
    view.draw()
    assert screen(terminal.getvalue())[:3] == [
        "a program's line",
        "  a     1.0s  /p/a",
        "[1.0s] 0/2 steps: 1 running, 0 waiting, 0 done, 0 cached, 0 failed",
    ]
    view.write_above("unfinished ")
    view.draw()
    view.write_above("line\n")
    view.on_event(StepEnded(103.0, "a", "/p/a", StepEnd.SUCCEEDED, 3.0))
    view.on_event(RunEnded(104.0, 4.0))
    assert screen(terminal.getvalue()) == [
        "a program's line",
        "unfinished line",
        "a: done in 3.00 s -> /p/a",
        "[4.0s] 1/2 steps: 0 running, 0 waiting, 1 done, 0 cached, 0 failed",
        "",
    ]


def test_cached_steps_are_only_counted() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 101.0)
    view.on_event(RunStarted(100.0, 1))
    view.on_event(StepEnded(100.0, "a", "/p/a", StepEnd.CACHED))
    view.on_event(RunEnded(101.0, 1.0))
    assert screen(terminal.getvalue()) == ["[1.0s] 1/1 steps: 0 running, 0 waiting, 0 done, 1 cached, 0 failed", ""]


SCRIPT = """
import logging, sys
from marin.execution.run.step_runner import StepRunner
from marin.execution.step_spec import StepSpec
logging.basicConfig(level=logging.INFO)
def work(path):
    print("said by the step")
    sys.stdout.writelines(["said in ", "two parts\\n"])
    inner = [] if path.endswith("inner") else [StepSpec(name="i", override_output_path=sys.argv[1] + "/inner", fn=work)]
    StepRunner().run(inner)
    logging.info("logged by the step")
StepRunner().run([StepSpec(name="a", output_path_prefix=sys.argv[1], fn=work)])
print("after the run")
"""


@pytest.mark.e2e
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_has_a_view_and_a_file_has_lines(tmp_path: Path, is_terminal: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"TERM": "xterm"}
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # a terminal that nobody has open any more
            break
        if not part:
            break
        output += part
    os.close(ours)
    assert process.wait(30) == 0
    text = output.decode()
    for expected in ("said by the step", "said in two parts", "logged by the step", "after the run", "a: done in"):
        assert expected in text
    # The run within the step has plain lines, on a terminal too: two views would draw over each other.
    assert "step i: done in" in text
    assert ("0 running, 0 waiting, 1 done, 0 cached, 0 failed" in text) == is_terminal
    assert ("step a: done in" in text) != is_terminal
    assert ("\x1b[" in text) == is_terminal


# Never "erase all below", which tmux takes at the top of the screen for a reason to keep what was there.
ERASE_THREE = "\x1b[3F" + 3 * "\x1b[2K\x1b[B" + "\x1b[3F"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_view_is_erased_before_anything_is_written_and_drawn_below_it() -> None:
    terminal = Terminal()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 160.0)
    view.progress = progress(2)
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
    terminal = Terminal()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 160.0)
    view.progress = progress(1)
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


def test_a_run_of_a_program_ends_with_its_steps() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 160.0, summary=True)
    view.on_event(RunStarted(100, 3))
    view.on_event(ended("a", seconds=1))
    view.on_event(ended("b", StepEnd.CACHED))
    view.on_event(ended("c", StepEnd.FAILED, error="bad"))
    view.on_event(RunEnded(165, 65))
    assert terminal.getvalue().splitlines()[-3:] == [
        "a  SUCCESS (ran 1.00s)  /p/a",
        "c  FAILED (bad)  /p/c",
        "and 1 whose output was there already",
    ]


def test_only_ends_that_are_news_scroll_by() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, size=lambda: (80, 24), now=lambda: 160.0)
    view.on_event(RunStarted(100, 3))
    view.on_event(ended("a", seconds=1))
    view.on_event(ended("b", StepEnd.CACHED))
    view.on_event(ended("c", StepEnd.CACHED, differences=("k",)))
    view.on_event(RunEnded(165, 65, error="KeyboardInterrupt"))
    text = terminal.getvalue()
    assert "a: done in 1.00 s -> /p/a\n" in text
    assert "b: already done" not in text
    assert "c: already done -> /p/c (made with" in text
    assert text.endswith(
        "[1:05] 3/3 steps: 0 running, 0 waiting, 1 done, 2 cached, 0 failed (ended by KeyboardInterrupt)\n"
    )


class Plain(Terminal):
    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("keyboard", "screen", "is_replaced"),
    [
        (Terminal(), Terminal(), True),
        (Plain(), Terminal(), False),
        (Terminal(), Plain(), False),
        (None, Terminal(), False),
    ],
)
def test_only_who_types_on_the_terminal_of_the_view_has_it_to_answer(
    monkeypatch: pytest.MonkeyPatch, keyboard: Terminal | None, screen: Terminal, is_replaced: bool
) -> None:
    """Else what is said while a step reads a pipe would be held back until that ends."""
    for name, stream in (("stdin", keyboard), ("stdout", screen), ("stderr", screen)):
        monkeypatch.setattr(sys, name, stream)
    view = LiveView(Terminal(), size=lambda: (80, 24), now=lambda: 160.0)
    view.on_event(RunStarted(100.0, 0))
    during = sys.stdin
    view.on_event(RunEnded(101.0, 1.0))
    assert (during is not keyboard) == is_replaced
    assert sys.stdin is keyboard
