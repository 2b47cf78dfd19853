"""The debugger at a failed step: what is typed there decides how the run goes on, and the view leaves the terminal."""

import builtins
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from marin.execution.report.debugger import NoDebugger, RunEndedInDebugger, check_debugger, debug_failure
from marin.execution.views.streams import Above, Keyboard


def failure() -> ValueError:
    def fail() -> None:
        tokens = 3
        raise ValueError(f"{tokens} tokens are too few")

    try:
        fail()
    except ValueError as error:
        return error
    raise AssertionError


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    monkeypatch.setattr(sys, "__stdout__", written)
    return written


def types(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Answer prompts with these lines, and then with the end of the input."""
    typed = iter(lines)

    def answer(prompt: str = "") -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(builtins, "input", answer)


def test_c_goes_on_with_the_run(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO) -> None:
    types(monkeypatch, "p tokens", "c")
    debug_failure("a", failure())
    lines = screen.getvalue().splitlines()
    assert lines[0] == "step a failed: ValueError: 3 tokens are too few"
    assert "3" in lines
    assert any("test_debugger.py" in line and "fail()" in line for line in lines)


@pytest.mark.parametrize("typed", [["q"], ["quit"], []])
def test_q_or_the_end_of_input(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, typed: list[str]) -> None:
    types(monkeypatch, *typed)
    error = failure()
    with pytest.raises(RunEndedInDebugger, match="step a failed, and the run was ended in its debugger") as ended:
        debug_failure("a", error)
    assert ended.value.__cause__ is error


def test_a_debugger_needs_somebody_who_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(NoDebugger, match="not a terminal"):
            check_debugger()


class View:
    """Notes when it leaves the terminal to others."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def write_above(self, text: str) -> None:
        self.log.append(text)

    @contextmanager
    def answering(self, prompt: str) -> Iterator[None]:
        self.log.append("rests")
        yield
        self.log.append("is back")


def test_for_a_debugger_the_streams_are_the_terminals_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its line editor, with keys and history, would not be used."""
    view, keyboard = View(), io.StringIO("typed\n")
    with open(os.devnull, "w") as terminal:
        above = Above(terminal, view)
        wrapped = Keyboard(keyboard, view, [above])
        monkeypatch.setattr(sys, "stdin", wrapped)
        assert above.fileno() != terminal.fileno()
        with wrapped.session():
            assert sys.stdin is keyboard
            assert above.fileno() == terminal.fileno()
        assert sys.stdin is wrapped
        assert above.fileno() != terminal.fileno()
        above.release()
    assert view.log == ["rests", "is back"]
    assert wrapped.readline() == "typed\n"
    assert view.log == ["rests", "is back"] * 2
