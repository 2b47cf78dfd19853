"""Prints results of commands: tables for people, JSON for programs. Progress goes to stderr."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TextIO

import click

from rigging.cli.output import Output as output
from rigging.cli.output import complain, echo, echo_json, settle_stdout, terminal_width
from rigging.text.printable import printable
from rigging.text.tables import duration, moment, table

__all__ = [
    "clear", "duration", "echo", "echo_data", "echo_json", "listed", "moment", "output", "say", "settle_stdout",
    "table", "terminal_size_of", "terminal_width", "told_if_slow",
]  # fmt: skip

_SHOWN: Final = 5


def clear() -> None:
    """Clear the terminal and move to its top."""
    click.echo("\x1b[H\x1b[2J", nl=False)


def echo_data(text: str) -> None:
    """Write data for programs to stdout unchanged. On a terminal, control characters are escaped."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def terminal_size_of(stream: TextIO) -> int:
    """Return the number of columns of a stream's terminal; 80 if unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def listed(names: Sequence[str]) -> str:
    """Return the first five names, and the number of further names."""
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def say(text: str) -> None:
    """Print a note on stderr. A closed stderr does not end the command."""
    complain(f"iris: {text}\n")


@contextlib.contextmanager
def told_if_slow(
    text: str, after: float = 1.0, make_timer: Callable[..., threading.Timer] = threading.Timer
) -> Iterator[None]:
    """Context manager: print the reason for a wait longer than `after` seconds.

    Args:
        text: The line to print.
        after: Seconds.
        make_timer: Creates a timer from seconds, a function and its arguments.
    """
    timer = make_timer(after, say, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
