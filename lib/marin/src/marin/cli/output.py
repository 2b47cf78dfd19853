"""Results of commands on stdout: tables for people, JSON for programs. Remarks go to stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rigging.printable import printable, printable_json
from rigging.tables import table


def show_rows(
    as_json: bool,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    records: Sequence[Mapping[str, Any]],
    notes: Sequence[str] = (),
) -> None:
    """Show a list: as a table, or as a JSON array.

    Args:
        as_json: Whether it is for a program.
        columns: Headers of the table.
        rows: Cells of the table.
        records: The same as plain data.
        notes: For each row a line that goes below it; empty: none.
    """
    if as_json:
        echo_json(list(records))
    elif rows:
        echo("\n".join(table(columns, rows, notes, terminal_width())))


def show_lines(as_json: bool, lines: Sequence[str], record: Mapping[str, Any] | Sequence[Any]) -> None:
    """Show one thing: as lines of text, or as its record.

    Args:
        as_json: Whether the record is shown.
        lines: The text.
        record: The same for programs.
    """
    if as_json:
        echo_json(record)
    elif lines:
        echo("\n".join(lines))


def echo(text: str) -> None:
    """Write text to stdout, with what a terminal would obey escaped, and what the encoding lacks, too."""
    safe = printable(text)
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(safe.encode(encoding, "backslashreplace").decode(encoding))


def echo_json(value: object) -> None:
    """Write a JSON document to stdout."""
    click.echo(printable_json(json.dumps(value, indent=1)))


def colours() -> bool:
    """True if stdout is a terminal on which nobody asked for no colours."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def echo_painted(lines: Sequence[tuple[str, str | None]]) -> None:
    """Write lines to stdout, each with its colour (click's name; None for none) where there are colours."""
    for text, colour in lines:
        if colour is not None and colours():
            click.echo(click.style(printable(text), fg=colour))
        else:
            echo(text)


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None when it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str) -> None:
    """Tell the user something on stderr; a closed stderr does not end the command."""
    complain(f"marin: {text}\n")


def complain(text: str) -> None:
    """Write text to stderr as it stands, with what a terminal would obey escaped."""
    try:
        sys.stderr.write(printable(text))
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def forget_stdout() -> None:
    """Drop what cannot be written: the interpreter flushes stdout at exit and would complain once more."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
