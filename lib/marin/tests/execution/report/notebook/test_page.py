"""What a notebook shows of a run, from its events alone."""

from html.parser import HTMLParser

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
from marin.execution.report.notebook.page import MOST_ROWS, run_html, run_text
from marin.execution.report.run_progress import RunProgress


class Seen(HTMLParser):
    """The words of a page, by row, and its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.head = ""
        self.bars: list[dict[str, str | None]] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "progress":
            self.bars.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        if self.rows:
            self.rows[-1].append(data.strip())
        else:
            self.head += data


def state(*events: RunEvent) -> RunProgress:
    progress = RunProgress()
    for event in events:
        progress.take(event)
    return progress


def page(progress: RunProgress, now: float) -> Seen:
    return Seen(run_html(progress.shown(now), progress.ends, progress.end, "/p/experiments/day-0a1b2c.json"))


def started(name: str, when: float = 1.0) -> StepStarted:
    return StepStarted(when, name, f"/p/{name}")


def ended(name: str, status: StepEnd, error: str | None = None) -> StepEnded:
    return StepEnded(9.0, name, f"/p/{name}", status, seconds=2.0, error=error)


def test_a_run_that_is_at_work() -> None:
    progress = state(
        RunStarted(0.0, 6),
        *(StepQueued(0.0, name, f"/p/{name}") for name in ("train", "evaluate", "tokenize", "waits")),
        started("train"),
        StepProgressed(3.0, "train", "/p/train", 25, 100),
        StepJobQueued(2.0, "evaluate", "/p/evaluate", "no v5p-8 is free"),
        StepRetrying(2.0, "tokenize", "/p/tokenize", 1, "failed", "OSError", 30.0),
        ended("raw", StepEnd.SUCCEEDED),
        ended("broken", StepEnd.FAILED, "ValueError: no cheese\nmore"),
    )
    seen = page(progress, 5.0)
    assert seen.head == "[5.0s] 2/6 steps: 1 running, 1 queued, 1 retrying, 1 waiting, 1 done, 0 cached, 1 failed"
    assert seen.rows == [
        ["failed", "broken", "2.0s", "/p/broken", "ValueError: no cheese"],
        ["done", "raw", "2.0s", "/p/raw"],
        ["running", "train", "4.0s", "/p/train", "25/100 (25 %), 4.0s left"],
        ["retrying", "tokenize", "3.0s", "/p/tokenize", "attempt 1 failed, again in 30 s"],
        ["queued", "evaluate", "3.0s", "/p/evaluate", "no v5p-8 is free"],
    ]
    assert [(bar["value"], bar["max"]) for bar in seen.bars] == [("0.2500", "1")]
    assert run_text(progress.shown(5.0), progress.ends).splitlines() == [
        seen.head,
        "  broken: failed -> /p/broken: ValueError: no cheese",
        "more",
        "  raw: done in 2.00 s -> /p/raw",
        "  train: running, 25/100 (25 %), 4.0s left -> /p/train",
        "  tokenize: retrying, attempt 1 failed, again in 30 s -> /p/tokenize",
        "  evaluate: queued, no v5p-8 is free -> /p/evaluate",
    ]


def test_the_end_of_a_run_and_of_one_that_was_interrupted() -> None:
    progress = state(RunStarted(0.0, 1), started("a"), ended("a", StepEnd.SUCCEEDED), RunEnded(9.0, 9.0))
    seen = page(progress, 9.0)
    assert seen.head == "[9.0s] 1/1 steps: 0 running, 0 waiting, 1 done, 0 cached, 0 failed"
    assert seen.rows[-1][-1].endswith("run info: /p/experiments/day-0a1b2c.json")
    progress = state(RunStarted(0.0, 1), started("a"), RunEnded(9.0, 9.0, "KeyboardInterrupt"))
    seen = page(progress, 9.0)
    assert seen.head == "[9.0s] interrupted: 0 done, 0 cached, 0 failed, 1 interrupted, 0 not begun"
    assert seen.rows[0][:2] == ["interrupted", "a"]
    progress = state(RunStarted(0.0, 1), RunEnded(9.0, 9.0, "OSError: disk full"))
    assert page(progress, 9.0).head.startswith("[9.0s] ended by OSError: disk full: ")


def test_text_of_others_is_escaped_and_cut() -> None:
    progress = state(
        RunStarted(0.0, 1),
        StepStarted(0.0, "<script>x</script>", '/p/"><img src=x>'),
        ended("b", StepEnd.FAILED, "<iframe>" + "long " * 1000),
    )
    written = run_html(progress.shown(1.0), progress.ends, None, "<b>")
    seen = Seen(written)
    assert seen.tags == {"div", "b", "table", "tr", "td", "span"}
    assert seen.rows[1][1:4] == ["<script>x</script>", "1.0s", '/p/"><img src=x>']
    assert len(seen.rows[0][-1]) < 400


def test_failures_come_first_and_the_rest_is_counted() -> None:
    names = [f"s{index}" for index in range(100)]
    progress = state(
        RunStarted(0.0, 200),
        *(ended(name, StepEnd.SUCCEEDED) for name in names),
        ended("bad", StepEnd.DEP_FAILED, "a dependency failed"),
        *(started(f"r{index}") for index in range(30)),
    )
    seen = page(progress, 2.0)
    assert len(seen.rows) == MOST_ROWS + 1 + 20 + 1
    assert seen.rows[0][:2] == ["not run", "bad"]
    assert seen.rows[1][1] == f"s{100 - (MOST_ROWS - 1)}"
    assert seen.rows[MOST_ROWS] == [f"and {101 - MOST_ROWS} more that have ended"]
    assert seen.rows[-1] == ["and 10 more at work"]
