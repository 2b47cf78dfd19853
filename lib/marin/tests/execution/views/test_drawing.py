"""What a view shows of a run, from its events alone: what fits is shown, the rest is counted."""

import io
import re
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

from marin.execution.report.events import (
    RunEnded,
    RunEvent,
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepProgressed,
    StepQueued,
    StepRetrying,
    StepStarted,
)
from marin.execution.report.run_progress import MOST_ENDS, RunProgress
from marin.execution.views.drawing import MOST_ROWS, STYLES, Pen


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")


def run_of(*events: RunEvent, usual: float = 0.0) -> RunProgress:
    run = RunProgress(usual={"s1": usual} if usual else {})
    for event in events:
        run.take(event)
    return run


def queued(count: int) -> list[RunEvent]:
    return [StepQueued(100, f"s{number}", f"/p/{number}") for number in range(count)]


def started(*numbers: int, when: float = 100.0) -> list[RunEvent]:
    return [StepStarted(when, f"s{number}", f"/p/{number}") for number in numbers]


def ended(name: str, status: StepEnd = StepEnd.SUCCEEDED, error: str | None = None, seconds: float = 2.0) -> StepEnded:
    return StepEnded(102, name, f"/p/{name}", status, seconds, error)


def far(done: float, when: float, number: int = 0) -> StepProgressed:
    return StepProgressed(when, f"s{number}", f"/p/{number}", done, 120)


def lines(run: RunProgress, now: float, width: int = 80, height: int = 10, **bars: str) -> list[str]:
    drawn = Pen(io.StringIO()).view(run, now, width, height, lambda path: bars.get(f"s{path[-1]}", ""))
    return [line.plain for line in drawn]


RUN = RunStarted(100, 4)


@pytest.mark.parametrize(
    ("events", "now", "shown"),
    [
        (  # the last line counts
            [*queued(4), *started(0), ended("1", StepEnd.CACHED), ended("2", StepEnd.FAILED, "bad")], 163,
            ["  s0     1:03  /p/0", "[1:03] 2/4 steps: 1 running, 1 waiting, 0 done, 1 cached, 1 failed"],
        ),
        (  # one that tells how far it is has a bar, and the time left by that
            [*started(0), far(30, 130)], 130,
            ["  s0    30.0s  ━━━━━                 30/120 (25 %)  1:30 left  /p/0"],
        ),
        ([*started(0), far(30, 130)], 150, ["  s0    50.0s  ━━━━━                 30/120 (25 %)  1:10 left  /p/0"]),
        ([*started(0), far(30, 130)], 230, ["  s0     2:10  ━━━━━                 30/120 (25 %)  /p/0"]),
        ([*started(0), far(200, 131)], 131, [f"  s0    31.0s  {'━' * 20}  200/120 (167 %)  /p/0"]),
        # Else by its earlier runs, until they are over.
        ([*started(1)], 110, ["  s1    10.0s  20.0s left  /p/1"]),
        ([*started(1), far(0, 105, 1)], 110, ["  s1    10.0s                        0/120 (0 %)  20.0s left  /p/1"]),
        ([*started(1)], 140, ["  s1    40.0s  /p/1"]),
        (  # those that wait say why; running ones come first, and one that begins again is told as new
            [
                *queued(3),
                StepJobQueued(99, "q", "/p/q", "no TPU is free"), StepJobQueued(102, "q", "/p/q", "no host is up"),
                *started(0, 2), far(30, 101), StepRetrying(101, "s0", "/p/0", 2, "timed out", "TimeoutError", 5.0),
                StepRetrying(101, "s2", "/p/2", 1, "failed", "OSError", 0.0), *started(2, when=102.5),
            ], 103,
            ["  s2     0.5s  /p/2", "  s0     2.0s  retrying: attempt 2 timed out, again in 5 s  /p/0",
             "  q      4.0s  queued: no host is up  /p/q",
             "[3.0s] 0/4 steps: 1 running, 1 queued, 1 retrying, 1 waiting"],
        ),
        ([ended("s0", StepEnd.LOST), RunEnded(102, 2, "OSError")], 102,
         ["[2.0s] 1/4 steps: 1 failed (ended by OSError)"]),
    ],
)  # fmt: skip
def test_what_a_view_says(events: list[RunEvent], now: float, shown: Sequence[str]) -> None:
    found = lines(run_of(RUN, *events, usual=30.0), now)
    assert found[: len(shown)] == [*shown]


def test_nobody_knows_how_many_steps_come_of_a_stream() -> None:
    [counts] = lines(run_of(RunStarted(100, None), *queued(1)), 101)
    assert counts == "[1.0s] 0 running, 1 waiting, 0 done, 0 cached, 0 failed"


@pytest.mark.parametrize(
    ("running", "height", "shown", "more"),
    [(0, 5, 0, None), (3, 5, 3, None), (5, 5, 3, "  and 2 more at work"), (2, 3, 1, "  and 1 more at work")],
)
def test_a_view_fits_its_height(running: int, height: int, shown: int, more: str | None) -> None:
    found = lines(run_of(RUN, *started(*range(running))), 160, height=height)
    assert sum("/p/" in line for line in found) == shown
    assert len(found) <= height
    assert ([line for line in found if "more at work" in line] or [None])[0] == more
    assert found[-1].startswith("[1:00] 0/4 steps")


def test_a_view_fits_its_width_and_its_columns_align() -> None:
    run = run_of(RUN, StepStarted(100, "short", "/p/a"), StepStarted(155, "x" * 50, "/p/b"), ended("c", StepEnd.FAILED))
    first, second, _ = lines(run, 160, width=200)
    assert first == f"  {'short':<40}     1:00  /p/a"
    assert second == f"  {'x' * 39}…     5.0s  /p/b"
    narrow = lines(run, 160, width=30)
    assert all(len(line) <= 29 for line in narrow)
    assert narrow[0] == f"  {'short':<10}     1:00", "a path that would be cut to nothing is left out"
    assert narrow[-1] == "[1:00] 1/4 steps: 1 failed, …", "failures are seen first"


def test_unfinished_lines_stand_below_their_steps_where_there_is_room() -> None:
    run = run_of(RUN, *started(0, 1, 2))
    found = lines(run, 160, s0="50%", s2="\x1b[32m10%\x1b[0m")
    assert [line.split()[0] for line in found[:-1]] == ["s0", "50%", "s1", "s2", "10%"]
    assert found[1] == "    50%"
    tight = lines(run, 160, height=5, s0="50%", s2="10%")
    assert [line.split()[0] for line in tight[:-1]] == ["s0", "50%", "s1", "s2"]


def test_names_cannot_move_the_cursor() -> None:
    [step, _] = lines(run_of(RUN, StepStarted(100, "a\x1b[2Jb\n", "/p/a")), 101)
    assert step.startswith("  a\\x1b[2Jb ")
    assert "\n" not in step


def test_colours_are_left_out_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for wanted, drawn in ((True, "\x1b[32ma: done\x1b[0m\n"), (False, "a: done\n")):
        monkeypatch.delenv("NO_COLOR", raising=False)
        if not wanted:
            monkeypatch.setenv("NO_COLOR", "1")
        pen = Pen(io.StringIO())
        assert pen.draw([pen.line("a: done", STYLES[StepEnd.SUCCEEDED])]) == drawn


def test_ends_are_kept_for_the_summary_but_not_of_an_endless_stream() -> None:
    kinds = (StepEnd.CACHED, StepEnd.SUCCEEDED)
    run = run_of(*(ended(f"s{number}", kinds[number % 2]) for number in range(3 * MOST_ENDS)))
    run.take(ended("bad", StepEnd.FAILED))
    assert (len(run.ends), run.ends[-1].name) == (MOST_ENDS + 1, "bad")
    assert sum(run.ended.values()) == 3 * MOST_ENDS + 1


class Seen(HTMLParser):
    """The lines of a page, and its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def page(run: RunProgress, now: float) -> list[str]:
    pen = Pen()
    bundle = pen.bundle(pen.page(run, now))
    seen = Seen(bundle["text/html"])
    assert seen.tags <= {"pre", "span"}, "text of others is escaped"
    assert re.sub(r"\n$", "", seen.text) == bundle["text/plain"]
    return bundle["text/plain"].splitlines()


def test_a_notebook_has_the_same_lines_below_the_counts_and_the_steps_that_ended() -> None:
    found = run_of(
        RunStarted(100, 9, None, "/p/experiments/day-0a1b2c.json"), *started(0), far(30, 130), ended("raw"),
        ended("b", StepEnd.FAILED, "ValueError: no <b>cheese</b>" + " long" * 1000 + "\nmore"),
        ended("c", StepEnd.CACHED), StepStarted(100, "<script>x</script>", '/p/"><img src=x>'),
    )  # fmt: skip
    counts, raw, bad, rest, *at_work = page(found, 130)
    assert counts == "[30.0s] 3/9 steps: 2 running, 0 waiting, 1 done, 1 cached, 1 failed"
    assert raw == "raw  SUCCESS (ran 2.00s)  /p/raw"
    assert bad.startswith("b    FAILED after 2.00s (ValueError: no <b>cheese</b> long")
    assert bad.endswith(" ...)  /p/b"), "an error is shown in part; the report of failures has all of it"
    assert len(bad) < 250
    assert rest == "and 1 whose output already existed"
    assert [line.split()[0] for line in at_work] == ["s0", "<script>x</script>"]
    found.take(RunEnded(135, 35, "KeyboardInterrupt"))
    assert page(found, 135)[0].endswith(" (ended by KeyboardInterrupt)")
    assert page(found, 135)[-1] == "run info: /p/experiments/day-0a1b2c.json"


def test_a_notebook_has_so_many_rows_failures_first() -> None:
    many = (ended(f"s{number}") for number in range(100))
    found = run_of(RUN, *many, ended("bad", StepEnd.DEP_FAILED, "why"), *started(*range(30)))
    rows = page(found, 101)
    assert len(rows) == 1 + MOST_ROWS + 1 + 20 + 1
    assert rows[MOST_ROWS] == "bad  DEP_FAILED (not run)  /p/bad"
    assert rows[MOST_ROWS + 1] == f"and {101 - MOST_ROWS} more that ran"
    assert rows[-1] == "  and 10 more at work"
