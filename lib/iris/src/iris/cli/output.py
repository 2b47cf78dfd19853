"""Results of commands: tables for people, JSON for programs. Lines about progress go to stderr."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TextIO

import click

from rigging.cli.output import Output as output
from rigging.cli.output import complain, echo, echo_json, settle_stdout, terminal_width
from rigging.text.printable import printable
from rigging.text.tables import duration, moment, table

__all__ = [
    "clear", "duration", "echo", "echo_data", "echo_json", "moment", "output", "say", "settle_stdout", "table",
    "terminal_size_of", "terminal_width", "told_if_slow",
]  # fmt: skip


def clear() -> None:
    """Begin at the top of an empty terminal."""
    click.echo("\x1b[H\x1b[2J", nl=False)


def echo_data(text: str) -> None:
    """Write data for programs to stdout as they are; on a terminal with what it would obey escaped."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


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
