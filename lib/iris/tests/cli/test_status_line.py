"""The line of stderr that is written anew while phases follow each other."""

import io

import pytest

from iris.cli.status_line import StatusLine, is_terminal


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_is_written_anew_and_removed_before_lines_that_stay() -> None:
    screen = Screen()
    status = StatusLine(screen, is_live=True, tell=lambda text: screen.write(f"iris: {text}\n") and None)
    status.show("waiting for 1.0 s: no cpu")
    status.show("waiting for 2.0 s: no cpu")
    status.phase("waiting: no cpu")
    status.say("running")
    status.clear()
    assert screen.getvalue() == (
        "\r\x1b[Kiris: waiting for 1.0 s: no cpu\r\x1b[Kiris: waiting for 2.0 s: no cpu\r\x1b[Kiris: running\n"
    )


def test_an_error_has_a_line_of_its_own() -> None:
    screen = Screen()

    def send() -> None:
        with StatusLine(screen, is_live=True) as status:
            status.show("sending: 3.0 MB")
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        send()
    assert screen.getvalue().endswith("3.0 MB\r\x1b[K")


def test_a_line_never_takes_two_rows_or_moves_the_cursor() -> None:
    screen = Screen()
    StatusLine(screen, is_live=True).show("x" * 200 + "\x1b[2J")
    assert len(screen.getvalue().removeprefix("\r\x1b[K")) == 79
    screen = Screen()
    StatusLine(screen, is_live=True).show("a\x1b[2J")
    assert screen.getvalue().count("\x1b") == 1


def test_once_others_write_to_the_terminal_phases_are_plain_lines() -> None:
    screen, said = Screen(), list[str]()
    status = StatusLine(screen, is_live=True, tell=said.append)
    status.show("building")
    status.retire()
    status.retire()
    status.show("building still")
    status.phase("running")
    assert screen.getvalue() == "\r\x1b[Kiris: building\r\x1b[K"
    assert said == ["running"]


def test_elsewhere_phases_are_plain_lines_and_quiet_is_quiet() -> None:
    screen, said = io.StringIO(), list[str]()
    for quiet in (False, True):
        status = StatusLine(screen, quiet=quiet, tell=said.append)
        status.show("waiting")
        status.phase("waiting: no cpu")
    status.say("job /a/b failed")
    assert screen.getvalue() == ""
    assert said == ["waiting: no cpu", "job /a/b failed"]


def test_quiet_holds_on_a_terminal_too() -> None:
    screen = Screen()
    status = StatusLine(screen, is_live=True, quiet=True)
    status.show("waiting")
    status.phase("waiting")
    assert screen.getvalue() == ""


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    screen = Screen()
    screen.close()
    status = StatusLine(screen, is_live=True)
    status.show("waiting")
    status.clear()
    assert not status.is_live


@pytest.mark.parametrize(
    ("term", "ci", "live"), [("xterm", None, True), ("dumb", None, False), (None, None, False), ("xterm", "1", False)]
)
def test_what_a_line_can_be_written_anew_on(
    monkeypatch: pytest.MonkeyPatch, term: str | None, ci: str | None, live: bool
) -> None:
    for name, value in (("TERM", term), ("CI", ci)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert is_terminal(Screen()) == live
    assert not is_terminal(io.StringIO())
    assert not is_terminal(None)
