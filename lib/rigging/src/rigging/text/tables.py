"""Tables, durations and times on command lines."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Sequence
from typing import Final

from rigging.text.printable import printable_line

_LEAST_LAST_COLUMN: Final = 16
_INDENT: Final = "    "


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table with a header, aligned columns, and no trailing spaces.

    Args:
        columns: Column headers.
        rows: Cells.
        notes: A note below each row; empty for none.
        width: The terminal's width. The last column and the notes are truncated to fit. With None nothing is truncated.
    """
    lines = [[column.upper() for column in columns], *([printable_line(cell) for cell in row] for row in rows)]
    widths = [max(_cells(line[i]) for line in lines) for i in range(len(columns))]
    left = None if width is None else max(width - sum(widths[:-1]) - 2 * (len(widths) - 1), _LEAST_LAST_COLUMN)
    shown = []
    for number, line in enumerate(lines):
        cells = [cell + " " * (size - _cells(cell)) for cell, size in zip(line[:-1], widths[:-1], strict=True)]
        shown.append("  ".join([*cells, _cut(line[-1], left)]).rstrip())
        note = printable_line(notes[number - 1]) if number and notes else ""
        if note:
            shown.append(_INDENT + _cut(note, None if width is None else width - len(_INDENT)))
    return shown


def _cells(text: str) -> int:
    """Return the width of `text` on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, width: int | None) -> str:
    if width is None or _cells(text) <= width:
        return text
    kept = text[: max(width - 3, 0)]
    while kept and _cells(kept) > width - 3:
        kept = kept[:-1]
    return kept + "..."


def duration(seconds: float | None) -> str:
    """Return a readable duration: "0.4 s", "3 min 20 s", "2 h 5 min"; "-" for none."""
    if seconds is None:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def moment(at_ms: int, now_ms: int) -> str:
    """Return a readable local time: the time of day within the last day, else the date; "-" for 0."""
    if not at_ms:
        return "-"
    form = "%H:%M:%S" if now_ms - at_ms < 86_400_000 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at_ms / 1000))
