"""Results of commands: tables for people, JSON for programs. Lines about progress go to stderr."""

import contextlib
import json
import os
import shutil
import sys
import threading
import time
import traceback
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import click

from rigging.printable import printable, printable_json, printable_line

_LEAST_LAST_COLUMN: Final = 16
_INDENT: Final = "    "


class Output(Protocol):
    """One way to show results on stdout."""

    def rows(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        records: Sequence[Mapping[str, Any]],
        notes: Sequence[str] = (),
    ) -> None:
        """Show a list: as a table, or as JSON.

        Args:
            columns: Headers of the table.
            rows: Cells of the table.
            records: The same as plain data.
            notes: For each row a line that goes below it; empty: none.
        """

    def record(self, lines: Sequence[str], record: Mapping[str, Any]) -> None:
        """Show one thing: as `lines` of text, or as its `record`."""


class TextOutput:
    """For people: aligned columns, no wider than the terminal."""

    def rows(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        records: Sequence[Mapping[str, Any]],  # noqa: ARG002
        notes: Sequence[str] = (),
    ) -> None:
        if not rows:
            return
        for line in table(columns, rows, notes, terminal_width()):
            echo(line)

    def record(self, lines: Sequence[str], record: Mapping[str, Any]) -> None:  # noqa: ARG002
        for line in lines:
            echo(line)


class JsonOutput:
    """For programs: one JSON document."""

    def rows(
        self,
        columns: Sequence[str],  # noqa: ARG002
        rows: Sequence[Sequence[str]],  # noqa: ARG002
        records: Sequence[Mapping[str, Any]],
        notes: Sequence[str] = (),  # noqa: ARG002
    ) -> None:
        echo_json(list(records))

    def record(self, lines: Sequence[str], record: Mapping[str, Any]) -> None:  # noqa: ARG002
        echo_json(record)


def output(as_json: bool) -> Output:
    """The output for a command's --json flag."""
    return JsonOutput() if as_json else TextOutput()


def echo(text: str) -> None:
    """Write text to stdout, with what a terminal would obey escaped."""
    click.echo(printable(text))


def echo_json(value: object, *, ensure_ascii: bool = True) -> None:
    """Write a JSON document to stdout."""
    click.echo(printable_json(json.dumps(value, indent=1, ensure_ascii=ensure_ascii)))


def echo_data(text: str) -> None:
    """Write data for programs to stdout as they are; on a terminal with what it would obey escaped."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None when it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), width: int | None = None
) -> list[str]:
    """Return the lines of a table with a header, columns aligned, no trailing spaces.

    Args:
        columns: Headers.
        rows: Cells.
        notes: For each row a line that goes below it; empty: none.
        width: Columns of the terminal: the last column and the notes are cut to fit. None: nothing is cut.
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
    """Columns that a text takes on a terminal."""
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


def say(text: str) -> None:
    """Tell the user something on stderr; a closed stderr does not end the command."""
    complain(f"iris: {text}\n")


@contextlib.contextmanager
def told_if_slow(text: str, after: float = 1.0) -> Iterator[None]:
    """Say what is waited for when it takes longer than `after` seconds."""
    timer = threading.Timer(after, say, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def complain(text: str) -> None:
    """Write text to stderr as it stands, with what a terminal would obey escaped."""
    try:
        sys.stderr.write(printable(text))
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def show_traceback(error: BaseException) -> None:
    """Write the whole story of an error to stderr."""
    complain("".join(traceback.format_exception(error)))


def duration(seconds: float | None) -> str:
    """A duration for people: "0.4 s", "3 min 20 s", "2 h 5 min"; "-" for none."""
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
    """A time for people, in local time: the clock for the last day, the date before; "-" for 0."""
    if not at_ms:
        return "-"
    form = "%H:%M:%S" if now_ms - at_ms < 86_400_000 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at_ms / 1000))


def settle_stdout() -> None:
    """Hand what is left to the system, or drop it where the reader is gone or the disk is full."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        forget_stdout()


def forget_stdout() -> None:
    """Drop what cannot be written: the interpreter flushes stdout at exit and would complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
