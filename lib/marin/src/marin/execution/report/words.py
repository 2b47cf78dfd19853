"""The wording about runs and steps in log lines, views and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from marin.execution.report.events import StepEnd, StepEnded, StepRetrying
from marin.execution.version.differences import WHAT_TO_TYPE

# In longer summaries, steps whose output was there are only counted.
MOST_LINES: Final = 50
_MOST_ERROR: Final = 200
_MOST_NAME: Final = 60
# What is left out of a summary, last first.
_MORE: Final = {
    StepEnd.FAILED: "more that failed",
    StepEnd.LOST: "more that lost their lease",
    StepEnd.DEP_FAILED: "more that were skipped",
    StepEnd.SUCCEEDED: "more that ran",
    StepEnd.CACHED: "whose output already existed",
}


def clock_text(seconds: float) -> str:
    """Return a duration as `5.2s`, `3:05` or `1:02:03`."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def count_words(ended: Mapping[StepEnd, int]) -> str:
    """Return the number of steps per outcome: `3 done, 2 cached, 1 failed`."""
    failed = ended[StepEnd.FAILED] + ended[StepEnd.LOST]
    words = [f"{ended[StepEnd.SUCCEEDED]} done", f"{ended[StepEnd.CACHED]} cached", f"{failed} failed"]
    if ended[StepEnd.DEP_FAILED]:
        words.append(f"{ended[StepEnd.DEP_FAILED]} not run")
    return ", ".join(words)


def queue_words(reason: str) -> str:
    """Return a description of a queued job: `queued: {reason}`."""
    return f"queued: {reason}" if reason else "queued"


def progress_words(done: float, total: float) -> str:
    """Return a step's progress: `30/120 (25 %)`."""
    return f"{done:g}/{total:g} ({100 * done / total:.0f} %)"


def retry_words(event: StepRetrying) -> str:
    """Describe a failed attempt and its retry: `stats: attempt 1 failed, again in 5 s`."""
    again = f"again in {event.delay:g} s" if event.delay else "again now"
    return f"{event.name}: attempt {event.attempt} {event.outcome}, {again}"


def end_words(event: StepEnded) -> str:
    """Describe a step's end on one line: `stats: done in 1.20 s -> /prefix/stats-0a1b2c`."""
    log = f" (log: {event.log})" if event.log else ""
    match event.status:
        case StepEnd.CACHED:
            made = f" (made with other values or code: {'; '.join(event.differences)})" if event.differences else ""
            return f"{event.name}: already done -> {event.path}{made}"
        case StepEnd.SUCCEEDED:
            queued = f" ({event.queued_seconds:.2f} s queued before)" if event.queued_seconds else ""
            return f"{event.name}: done in {event.seconds:.2f} s{queued} -> {event.path}"
        case StepEnd.DEP_FAILED:
            return f"{event.name}: not run, because a dependency failed -> {event.path}: {_shortly(event.error)}"
        case StepEnd.LOST:
            error = f"{_shortly(event.error)}{log}"
            return f"{event.name}: lost its lease, so its output does not count -> {event.path}: {error}"
        case StepEnd.FAILED:
            return f"{event.name}: failed -> {event.path}: {_shortly(event.error)}{log}"


def _shortly(error: str | None) -> str:
    """Return the beginning of an error. The failure report has the full text."""
    first = (error or "unknown error").partition("\n")[0]
    return first if len(first) <= _MOST_ERROR else f"{first[:_MOST_ERROR]} ..."


def summary_lines(
    ends: Sequence[StepEnded], left_out: Mapping[StepEnd, int] | None = None, most: int = MOST_LINES
) -> list[tuple[StepEnd | None, str]]:
    """Return the lines of a summary, each with its outcome: steps in order, counts of the others, the next command.

    Args:
        ends: The steps.
        left_out: The number of further steps per outcome.
        most: Maximum number of steps. Cached steps are dropped first, failures last.
    """
    order = list(_MORE)
    kept = set(sorted(range(len(ends)), key=lambda index: order.index(ends[index].status))[:most])
    counts = dict.fromkeys(_MORE, 0) | dict(left_out or {})
    for index, each in enumerate(ends):
        counts[each.status] += index not in kept
    shown = [each for index, each in enumerate(ends) if index in kept]
    width = min(_MOST_NAME, max((len(each.name) for each in shown), default=0))
    lines: list[tuple[StepEnd | None, str]] = [
        (each.status, f"{each.name:<{width}}  {_outcome(each)}  {each.path}") for each in shown
    ]
    more = ", ".join(f"{counts[end]} {word}" for end, word in _MORE.items() if counts[end])
    hints = [*([f"and {more}"] if more else ()), *([WHAT_TO_TYPE] if any(each.differences for each in shown) else ())]
    return [*lines, *((None, hint) for hint in hints)]


def _outcome(event: StepEnded) -> str:
    """Return the outcome of a step in a summary: `SUCCESS (ran 1.20s)`."""
    match event.status:
        case StepEnd.SUCCEEDED:
            queued = f", queued {event.queued_seconds:.2f}s" if event.queued_seconds else ""
            return f"SUCCESS (ran {event.seconds:.2f}s{queued})"
        case StepEnd.CACHED:
            made = f", made with other {'; '.join(event.differences)}" if event.differences else ""
            return f"SUCCESS (already done{made})"
        case StepEnd.DEP_FAILED:
            return "DEP_FAILED (not run)"
        case _:
            ran = f" after {event.seconds:.2f}s" if event.seconds else ""
            return f"FAILED{ran} ({_shortly(event.error)})"
