"""View of a run in a notebook, as HTML and as plain text: computed from its state, without a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from marin.execution.report.events import RunEnded, StepEnd, StepEnded
from marin.execution.report.log_lines import count_words, end_words, progress_words
from marin.execution.report.run_progress import Activity, ShownRun, ShownStep, clock_text, count_line
from rigging.text.printable import printable, printable_line

# Rows of ended steps; failures come first.
MOST_ROWS: Final = 40
_MOST_CHARACTERS: Final = 300

# Colours that can be read on white and on black. Other text has the notebook's own colour. Each state has a word, too.
_COLOURS: Final = {
    StepEnd.SUCCEEDED: "#2a9d5c",
    StepEnd.CACHED: "#8a8a8a",
    StepEnd.FAILED: "#e0524d",
    StepEnd.LOST: "#e0524d",
    StepEnd.DEP_FAILED: "#c08a1e",
}
_WORDS: Final = {
    StepEnd.SUCCEEDED: "done",
    StepEnd.CACHED: "already done",
    StepEnd.FAILED: "failed",
    StepEnd.LOST: "lost",
    StepEnd.DEP_FAILED: "not run",
}
_ACTIVITY_COLOURS: Final = {
    Activity.RUNNING: "#3b8edb",
    Activity.QUEUED: "#c08a1e",
    Activity.RETRYING: "#c08a1e",
}
_EARLY: Final = "#c08a1e"
_BOX: Final = (
    "font-family:var(--jp-code-font-family,var(--vscode-editor-font-family,monospace));font-size:12px;line-height:1.5;"
    "border-left:3px solid {colour};padding-left:8px;overflow-x:auto"
)
_CELL: Final = "text-align:left;padding:0 14px 0 0;white-space:nowrap;background:transparent;color:inherit"


def run_html(
    shown: ShownRun, ended: Sequence[StepEnded], end: RunEnded | None = None, info_path: str | None = None
) -> str:
    """Return a run as HTML; all text in it is escaped.

    Args:
        shown: What is shown of the run.
        ended: Ended steps worth a row, in the order of their ends.
        end: The run's end; None while it runs.
        info_path: The run's info file.
    """
    rows = [*_ended_rows(ended), *(_step_row(step, end is not None) for step in shown.steps)]
    if shown.left_out:
        rows.append(_row(["", f"and {shown.left_out} more at work"]))
    table = f'<table style="border-collapse:collapse;margin:0">{"".join(rows)}</table>' if rows else ""
    info = "" if info_path is None or end is None else f'<div style="opacity:.7">run info: {_text(info_path)}</div>'
    box = _BOX.format(colour=_colour_of(shown, end))
    return f'<div class="marin-run" style="{box}"><div><b>{_text(head(shown, end))}</b></div>{table}{info}</div>'


def run_text(
    shown: ShownRun, ended: Sequence[StepEnded], end: RunEnded | None = None, info_path: str | None = None
) -> str:
    """Return the same as plain text, for what cannot show HTML; arguments as for `run_html`."""
    lines = [head(shown, end), *(printable(f"  {end_words(each)}") for each in _chosen(ended))]
    for step in shown.steps:
        words = [_word(step, end is not None), *_state_words(step, end is not None)]
        lines.append(printable_line(f"  {step.name}: {', '.join(words)} -> {step.path}"))
    if info_path is not None and end is not None:
        lines.append(printable_line(f"run info: {info_path}"))
    return "\n".join(lines)


def head(shown: ShownRun, end: RunEnded | None) -> str:
    """Return the first line: the counts, and how the run ended if it was early."""
    if end is None or end.error is None:
        return count_line(shown)
    early = "interrupted" if end.error.startswith("KeyboardInterrupt") else f"ended by {end.error}"
    stopped = shown.running + shown.queued + shown.retrying
    counts = f"{count_words(shown.ended)}, {stopped} interrupted, {shown.waiting} not begun"
    return f"[{clock_text(shown.seconds)}] {early}: {counts}"


def _colour_of(shown: ShownRun, end: RunEnded | None) -> str:
    if shown.ended[StepEnd.FAILED] or shown.ended[StepEnd.LOST]:
        return _COLOURS[StepEnd.FAILED]
    if end is None:
        return _ACTIVITY_COLOURS[Activity.RUNNING]
    return _COLOURS[StepEnd.SUCCEEDED] if end.error is None else _EARLY


def _chosen(ended: Sequence[StepEnded]) -> list[StepEnded]:
    """Return the steps that have rows: failures first, then the latest of the others."""
    good = (StepEnd.SUCCEEDED, StepEnd.CACHED)
    bad = [each for each in ended if each.status not in good][:MOST_ROWS]
    room = MOST_ROWS - len(bad)
    return bad + ([each for each in ended if each.status in good][-room:] if room else [])


def _ended_rows(ended: Sequence[StepEnded]) -> Iterable[str]:
    chosen = _chosen(ended)
    for each in chosen:
        seconds = clock_text(each.seconds) if each.seconds else ""
        word = _coloured(_WORDS[each.status], _COLOURS[each.status])
        yield _row([word, _text(each.name), seconds, _text(each.path), _text(_remark(each))])
    if len(chosen) < len(ended):
        yield _row(["", f"and {len(ended) - len(chosen)} more that have ended"])


def _remark(each: StepEnded) -> str:
    if each.differences:
        return f"made with other values or code: {'; '.join(each.differences)}"
    return (each.error or "").partition("\n")[0]


def _step_row(step: ShownStep, is_over: bool) -> str:
    bar = ""
    if step.share is not None and not is_over:
        bar = f'<progress value="{step.share:.4f}" max="1" style="width:120px;vertical-align:middle"></progress> '
    word = _coloured(_word(step, is_over), _EARLY if is_over else _ACTIVITY_COLOURS[step.activity])
    words = _text(", ".join(_state_words(step, is_over)))
    return _row([word, _text(step.name), clock_text(step.seconds), _text(step.path), f"{bar}{words}"])


def _word(step: ShownStep, is_over: bool) -> str:
    return "interrupted" if is_over else step.activity.value


def _state_words(step: ShownStep, is_over: bool) -> list[str]:
    parts = []
    if step.words:
        parts.append(step.words)
    if step.done is not None and step.total is not None:
        parts.append(progress_words(step.done, step.total))
    if step.seconds_left is not None and not is_over:
        parts.append(f"{clock_text(step.seconds_left)} left")
    return parts


def _coloured(word: str, colour: str) -> str:
    return f'<span style="color:{colour}">{_text(word)}</span>'


def _row(cells: Iterable[str]) -> str:
    return (
        '<tr style="background:transparent">' + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"
    )


def _text(text: str) -> str:
    """Return text as HTML; what is very long is cut."""
    line = printable_line(text)
    return escape(line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…")
