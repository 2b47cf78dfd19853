"""The lines of the live view: what fits the terminal is shown, the rest is counted."""

import io

import pytest

from marin.execution.report.events import (
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepProgressed,
    StepQueued,
    StepRetrying,
    StepStarted,
)
from marin.execution.report.live.drawing import Drawn, Pen
from marin.execution.report.run_progress import RunProgress


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")


def progress(running: int, waiting: int = 0, total: int | None = 9) -> RunProgress:
    found = RunProgress()
    found.take(RunStarted(100, total))
    for number in range(running + waiting):
        found.take(StepQueued(100, f"s{number}", f"/p/{number}"))
    for number in range(running):
        found.take(StepStarted(100 + number, f"s{number}", f"/p/{number}"))
    return found


def lines(found: RunProgress, now: float, width: int, height: int, bars: dict[str, str] | None = None) -> list[str]:
    shown = found.shown(now, most=height - 2)
    return Pen(io.StringIO()).view(shown, width, lambda path: (bars or {}).get(path, ""), height).text.splitlines()


def test_what_a_view_says() -> None:
    found = progress(1, 3, total=4)
    found.take(StepEnded(102.0, "s1", "/p/1", StepEnd.CACHED))
    found.take(StepEnded(102.0, "s2", "/p/2", StepEnd.FAILED, error="bad"))
    assert lines(found, 163.0, 80, 20) == [
        "  s0     1:03  /p/0",
        "[1:03] 2/4 steps: 1 running, 1 waiting, 0 done, 1 cached, 1 failed",
    ]


def test_a_step_that_tells_how_far_it_is_has_a_bar() -> None:
    found = progress(1)
    found.take(StepProgressed(130, "s0", "/p/0", 30, 120))
    assert lines(found, 130, 80, 10)[0] == "  s0    30.0s  ━━━━━                 30/120 (25 %)  1:30 left  /p/0"
    found.take(StepProgressed(131, "s0", "/p/0", 200, 120))
    found.take(StepEnded(131, "s1", "/p/1", StepEnd.FAILED))
    assert lines(found, 131, 30, 10)[-1] == "[31.0s] 1/9 steps: 1 failed,…", "failures are seen first"
    assert "━" * 20 in lines(found, 131, 80, 10)[0], "more than all is all"


def test_steps_that_wait_for_their_cluster_or_for_another_try_say_why() -> None:
    found = progress(0)
    found.take(StepJobQueued(100, "q", "/p/q", "no TPU is free"))
    found.take(StepRetrying(100, "r", "/p/r", 2, "timed out", "TimeoutError", 5.0))
    assert lines(found, 103, 80, 10) == [
        "  r     3.0s  retrying: attempt 2 timed out, again in 5 s  /p/r",
        "  q     3.0s  queued: no TPU is free  /p/q",
        "[3.0s] 0/9 steps: 1 queued, 1 retrying",
    ]


@pytest.mark.parametrize(
    ("running", "height", "shown", "more"),
    [(0, 5, 0, None), (3, 5, 3, None), (5, 5, 3, "  and 2 more at work"), (2, 3, 1, "  and 1 more at work")],
)
def test_a_view_fits_its_height(running: int, height: int, shown: int, more: str | None) -> None:
    found = lines(progress(running), 160, 80, height)
    assert sum("/p/" in line for line in found) == shown
    assert len(found) <= height
    assert ([line for line in found if "more at work" in line] or [None])[0] == more
    assert found[-1].startswith("[1:00] 0/9 steps")


def test_a_view_fits_its_width_and_its_columns_align() -> None:
    found = progress(0)
    found.take(StepStarted(100, "short", "/p/a"))
    found.take(StepStarted(155, "x" * 50, "/p/b"))
    first, second, _ = lines(found, 160, 200, 10)
    assert first == f"  {'short':<40}     1:00  /p/a"
    assert second == f"  {'x' * 39}…     5.0s  /p/b"
    narrow = lines(found, 160, 30, 10)
    assert all(len(line) <= 29 for line in narrow)
    assert narrow[0] == f"  {'short':<10}     1:00", "a path that would be cut to nothing is left out"


def test_unfinished_lines_stand_below_their_steps_where_there_is_room() -> None:
    bars = {"/p/0": "50%", "/p/2": "\x1b[32m10%\x1b[0m"}
    found = lines(progress(3), 160, 80, 10, bars)
    assert [line.split()[0] for line in found[:-1]] == ["s0", "50%", "s1", "s2", "10%"]
    assert found[1] == "    50%"
    tight = lines(progress(3), 160, 80, 5, bars)
    assert [line.split()[0] for line in tight[:-1]] == ["s0", "50%", "s1", "s2"]


def test_names_cannot_move_the_cursor() -> None:
    found = progress(0)
    found.take(StepStarted(100, "a\x1b[2Jb\n", "/p/a"))
    [step, _] = lines(found, 101, 80, 10)
    assert "\x1b" not in step
    assert step.startswith("  a")


def test_a_terminal_that_became_narrower_has_broken_the_lines() -> None:
    drawn = Drawn("", (79, 10, 0))
    assert [drawn.rows(width) for width in (80, 79, 40, 5)] == [3, 3, 4, 19]


def test_colours_are_left_out_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Pen(io.StringIO()).end_line(StepEnd.SUCCEEDED, "a: done") == "\x1b[32ma: done\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Pen(io.StringIO()).end_line(StepEnd.SUCCEEDED, "a: done") == "a: done\n"
