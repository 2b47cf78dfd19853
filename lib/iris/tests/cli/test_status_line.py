"""The line of stderr that is written anew while phases follow each other."""

import io

import pytest

from iris.cli.status_line import StatusLine, is_terminal
from support.iris.cli import Terminal


def test_a_line_is_written_anew_and_removed_before_lines_that_stay() -> None:
    screen = Terminal()
    status = StatusLine(screen, is_live=True, tell=lambda text: screen.write(f"iris: {text}\n") and None)
    status.show("waiting for 1.0 s: no cpu")
    status.show("waiting for 2.0 s: no cpu")
    status.phase("waiting: no cpu")
    status.say("running")
    status.clear()
    assert screen.getvalue() == (
        "\r\x1b[Kiris: waiting for 1.0 s: no cpu\r\x1b[Kiris: waiting for 2.0 s: no cpu\r\x1b[Kiris: running\n"
    )
    screen = Terminal()
    with StatusLine(screen, is_live=True) as status:
        status.show("sending: 3.0 MB")
    assert screen.getvalue().endswith("3.0 MB\r\x1b[K"), "what comes after it has a line of its own"


@pytest.mark.parametrize(("text", "size"), [("x" * 200 + "\x1b[2J", 79), ("a\x1b[2J", 14)])
def test_a_line_never_takes_two_rows_or_moves_the_cursor(text: str, size: int) -> None:
    screen = Terminal()
    StatusLine(screen, is_live=True).show(text)
    shown = screen.getvalue().removeprefix("\r\x1b[K")
    assert (len(shown), "\x1b" in shown) == (size, False)


def test_once_others_write_to_the_terminal_phases_are_plain_lines() -> None:
    screen, said = Terminal(), list[str]()
    status = StatusLine(screen, is_live=True, tell=said.append)
    status.show("building")
    status.retire()
    status.retire()
    status.show("building still")
    status.phase("running")
    assert screen.getvalue() == "\r\x1b[Kiris: building\r\x1b[K"
    assert said == ["running"]


@pytest.mark.parametrize("is_live", [False, True])
def test_elsewhere_phases_are_plain_lines_and_quiet_is_quiet(is_live: bool) -> None:
    screen, said = Terminal(), list[str]()
    StatusLine(screen, is_live=False, tell=said.append).phase("waiting: no cpu")
    for status in (
        StatusLine(screen, is_live=is_live, quiet=True, tell=said.append),
        StatusLine(screen, is_live=False),
    ):
        status.show("waiting")
    status = StatusLine(screen, is_live=is_live, quiet=True, tell=said.append)
    status.phase("waiting: no cpu")
    status.say("job /a/b failed")
    assert screen.getvalue() == ""
    assert said == ["waiting: no cpu", "job /a/b failed"]


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    screen = Terminal()
    screen.close()
    status = StatusLine(screen, is_live=True)
    status.show("waiting")
    status.clear()
    assert not status.is_live


@pytest.mark.parametrize(
    ("term", "ci", "live"), [("xterm", None, True), ("dumb", None, False), (None, None, False), ("xterm", "1", False)]
)
def test_where_lines_are_live(monkeypatch: pytest.MonkeyPatch, term: str | None, ci: str | None, live: bool) -> None:
    for name, value in (("TERM", term), ("CI", ci)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert is_terminal(Terminal()) == live
    assert not is_terminal(io.StringIO())
    assert not is_terminal(None)
