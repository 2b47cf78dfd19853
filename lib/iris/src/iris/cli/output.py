"""Results of commands: tables for people, JSON for programs. Lines about progress go to stderr."""

import contextlib
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TextIO

import click

from rigging.printable import printable, printable_json
from rigging.tables import duration as duration
from rigging.tables import moment as moment
from rigging.tables import table as table


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


def clear() -> None:
    """Begin at the top of an empty terminal."""
    click.echo("\x1b[H\x1b[2J", nl=False)


def echo_json(value: object, *, ensure_ascii: bool = True) -> None:
    """Write a JSON document to stdout."""
    click.echo(printable_json(json.dumps(value, indent=1, ensure_ascii=ensure_ascii)))


def echo_data(text: str) -> None:
    """Write data for programs to stdout as they are; on a terminal with what it would obey escaped."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None when it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def terminal_size_of(stream: TextIO) -> int:
    """Columns of the terminal that a stream is; 80 when that is not known."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def say(text: str) -> None:
    """Tell the user something on stderr; a closed stderr does not end the command."""
    complain(f"iris: {text}\n")


@contextlib.contextmanager
def told_if_slow(
    text: str, after: float = 1.0, make_timer: Callable[..., threading.Timer] = threading.Timer
) -> Iterator[None]:
    """Say what is waited for when it takes longer than `after` seconds.

    Args:
        text: The line to say.
        after: Seconds.
        make_timer: Makes the timer, from seconds, a function and its arguments.
    """
    timer = make_timer(after, say, (text,))
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


def settle_stdout() -> None:
    """Hand what is left to the system, or drop it where the reader is gone or the disk is full."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        forget_stdout()


def forget_stdout() -> None:
    """Drop what cannot be written: the interpreter flushes stdout at exit and would complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
