"""Results of commands on stdout: tables for people, JSON for programs. Notes go to stderr."""

import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from rigging.text.printable import printable, printable_json
from rigging.text.tables import table

_HINT: Final = re.compile("`(?=(?:iris|marin|fray) )")


class Output(NamedTuple):
    """The output format of a command.

    Args:
        as_json: Print a single JSON document for programs. Otherwise print text that fits the terminal's width.
    """

    as_json: bool

    def rows(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        records: Sequence[Mapping[str, Any]],
        notes: Sequence[str] = (),
    ) -> None:
        """Print a list, as a table or as JSON.

        Args:
            columns: Column headers.
            rows: The cells of the table.
            records: The same data as plain values, for JSON.
            notes: A note below each row; empty for none.
        """
        self.record(table(columns, rows, notes, terminal_width()) if rows else (), list(records))

    def record(self, lines: Sequence[str], record: Mapping[str, Any] | Sequence[Any]) -> None:
        """Print the text `lines`, or the JSON `record`."""
        if self.as_json:
            echo_json(record)
        elif lines:
            echo("\n".join(lines))


def echo(text: str) -> None:
    """Write text to stdout. Terminal control characters and characters outside the encoding are escaped."""
    safe = printable(text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(safe.encode(encoding, "backslashreplace").decode(encoding))


def echo_json(value: object, *, ensure_ascii: bool = True) -> None:
    """Write a JSON document to stdout."""
    click.echo(printable_json(json.dumps(value, indent=1, ensure_ascii=ensure_ascii)))


def terminal_width() -> int | None:
    """Return the width of stdout's terminal in columns; None if it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def complain(text: str) -> None:
    """Write text to stderr with terminal control characters escaped. A closed stderr is ignored.

    Hints, such as `marin show RUN` in backticks, begin with `uv run` in a command that uv runs.
    """
    if "UV_RUN_RECURSION_DEPTH" in os.environ:
        text = _HINT.sub("`uv run ", text)
    try:
        sys.stderr.write(printable(text))
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def show_traceback(error: BaseException) -> None:
    """Write an error's full traceback to stderr."""
    complain("".join(traceback.format_exception(error)))


def settle_stdout() -> None:
    """Flush stdout. Drop the rest if the reader is gone or the disk is full."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        forget_stdout()


def forget_stdout() -> None:
    """Discard unwritable output: otherwise the interpreter's flush at exit would fail again."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
