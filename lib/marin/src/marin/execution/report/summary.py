"""The summary of a run: each step with how it ended, how long it took and where its output is; a long one is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from marin.execution.report.events import StepEnd, StepEnded

# In longer summaries, steps whose output was there are only counted.
MOST_LINES: Final = 50
_MOST_NAME: Final = 60
# What is left out last, first.
_ORDER: Final = (StepEnd.FAILED, StepEnd.LOST, StepEnd.DEP_FAILED, StepEnd.SUCCEEDED, StepEnd.CACHED)


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One step of a summary.

    Attributes:
        name: Its name.
        end: How it ended.
        words: The same in words.
        path: Its output path.
    """

    name: str
    end: StepEnd
    words: str
    path: str


def summary_text_lines(
    rows: Sequence[SummaryRow], left_out: Mapping[StepEnd, int] | None = None, most: int = MOST_LINES
) -> list[str]:
    """Return the lines of a summary: the rows in their order, and how many of each kind are left out.

    Args:
        rows: The steps.
        left_out: How many more steps of each kind there are.
        most: At most this many rows; failures stay, and what was there already goes first.
    """
    kept = set(sorted(range(len(rows)), key=lambda index: _ORDER.index(rows[index].end))[:most])
    shown = [row for index, row in enumerate(rows) if index in kept]
    counts = dict(left_out or {})
    for index, row in enumerate(rows):
        if index not in kept:
            counts[row.end] = counts.get(row.end, 0) + 1
    width = min(_MOST_NAME, max((len(row.name) for row in shown), default=0))
    lines = [f"{row.name:<{width}}  {row.words}  {row.path}" for row in shown]
    more = [f"{counts[end]} {_WORDS[end]}" for end in _ORDER if counts.get(end)]
    return [*lines, *([f"and {', '.join(more)}"] if more else ())]


def row_of(event: StepEnded) -> SummaryRow:
    """Return the row of a step that ended."""
    return SummaryRow(event.name, event.status, words_of(event.status, event.seconds, event.error), event.path)


def words_of(
    end: StepEnd, seconds: float, error: str | None, queued_seconds: float = 0.0, made_with: str | None = None
) -> str:
    """Return how a step ended: `SUCCESS (ran 1.20s)`.

    Args:
        end: How it ended.
        seconds: How long its function took.
        error: Why it failed.
        queued_seconds: How long its job was queued.
        made_with: In what an output that was there differs from this run; None when it does not.
    """
    if end is StepEnd.SUCCEEDED:
        queued = f", queued {queued_seconds:.2f}s" if queued_seconds else ""
        return f"SUCCESS (ran {seconds:.2f}s{queued})"
    if end is StepEnd.CACHED:
        return f"SUCCESS (already done{f', made with other {made_with}' if made_with else ''})"
    if end is StepEnd.DEP_FAILED:
        return "DEP_FAILED (not run)"
    ran = f" after {seconds:.2f}s" if seconds else ""
    return f"FAILED{ran} ({(error or 'unknown error').partition(chr(10))[0]})"


_WORDS: Final = {
    StepEnd.FAILED: "more that failed",
    StepEnd.LOST: "more that lost their lease",
    StepEnd.DEP_FAILED: "more that were not run",
    StepEnd.SUCCEEDED: "more that ran",
    StepEnd.CACHED: "whose output was there already",
}
