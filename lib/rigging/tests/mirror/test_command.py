"""The command that mirrors ahead: what it prints while it works, and its exit codes."""

import io
from typing import Any

import pytest

from rigging.errors import InvalidRequest, Unavailable
from rigging.filesystem.budget import TransferBudgetExceeded, current_budget
from rigging.mirror import __main__ as command
from rigging.mirror.prefetch import Progress
from support.rigging.clock import FakeClock

DONE = Progress("a", files_done=3, files_total=10, bytes_done=2**20, bytes_total=2**30, bytes_moved=0)


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_once_a_second(is_terminal: bool) -> None:
    clock, screen = FakeClock(monotonic=100), Screen(is_terminal)
    printer = command.Printer(screen, clock)
    for later in (0.0, 0.875, 0.125, 0.5, 0.5):
        clock.advance(later)
        printer.show(DONE)
    printer.finish()
    line = "3/10 files, 1.00 MB of 1.00 GB"
    shown = f"\r\x1b[K{line}" * 2 + "\r\x1b[K" if is_terminal else f"{line}\n" * 2
    assert screen.getvalue() == shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TransferBudgetExceeded("too much"), 3),
        (InvalidRequest("no prefix"), 2),
        (FileNotFoundError("none"), 2),
        (Unavailable("away"), 1),
        (OSError("disk"), 1),
    ],
)
def test_each_failure_has_its_exit_code(capsys: pytest.CaptureFixture[str], error: Exception, code: int) -> None:
    def fail(*paths: str, **options: Any) -> Any:
        raise error

    for options in ([], ["--dry-run"]):
        assert command.main(["a", *options], plan=fail, prefetch=fail) == code
        told = capsys.readouterr().err
        assert told.startswith(f"rigging.mirror: {error}")
        assert ("--budget-gb here" in told) == (code == 3)


def test_a_budget_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []

    def note(*paths: str, **options: Any) -> Any:
        limits.append(current_budget().limit_bytes)
        raise Unavailable("enough")

    command.main(["a", "--budget-gb", "0.5"], prefetch=note)
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "2")
    command.main(["a"], prefetch=note)
    assert limits == [2**29, 2**31]
