"""Results of commands on stdout: tables for people, JSON for programs. Remarks go to stderr."""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from rigging.text.printable import printable, printable_json
from rigging.text.tables import table


class Output(NamedTuple):
    """How a command shows its results.

    Args:
        as_json: As one JSON document for programs; else for people, no wider than the terminal.
    """

    as_json: bool

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
        self.record(table(columns, rows, notes, terminal_width()) if rows else (), list(records))

    def record(self, lines: Sequence[str], record: Mapping[str, Any] | Sequence[Any]) -> None:
        """Show one thing: as `lines` of text, or as its `record`."""
        if self.as_json:
            echo_json(record)
        elif lines:
            echo("\n".join(lines))


def echo(text: str) -> None:
    """Write text to stdout, with what a terminal would obey escaped, and what the encoding lacks, too."""
    safe = printable(text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(safe.encode(encoding, "backslashreplace").decode(encoding))


def echo_json(value: object, *, ensure_ascii: bool = True) -> None:
    """Write a JSON document to stdout."""
    click.echo(printable_json(json.dumps(value, indent=1, ensure_ascii=ensure_ascii)))


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None when it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def complain(text: str) -> None:
    """Write text to stderr as it stands, with what a terminal would obey escaped; a closed stderr ends nothing."""
    try:
        sys.stderr.write(printable(text))
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def show_traceback(error: BaseException) -> None:
    """Write the whole story of an error to stderr."""
    complain("".join(traceback.format_exception(error)))


def settle_stdout() -> None:
    """Hand what is left to the system, or drop it where the reader is gone or the disk is full."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        forget_stdout()


def forget_stdout() -> None:
    """Drop what cannot be written: the interpreter flushes stdout at exit and would complain once more."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
