"""Results of commands on stdout: tables for people, JSON for programs. Notes go to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import click

from rigging.cli.output import Output, complain, echo, echo_json
from rigging.text.printable import printable

__all__ = ["Output", "Progress", "echo", "echo_json", "echo_painted", "say"]


def colours() -> bool:
    """Return whether stdout is a terminal and the user has not disabled colours."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return not plain and sys.stdout.isatty()


def echo_painted(lines: Sequence[tuple[str, str | None]]) -> None:
    """Write lines to stdout in their colours (click's names; None for none), or plain if colours are off."""
    for text, colour in lines:
        if colour is not None and colours():
            click.echo(click.style(printable(text), fg=colour))
        else:
            echo(text)


def say(text: str) -> None:
    """Print a note on stderr. A closed stderr does not end the command."""
    complain(f"marin: {text}\n")


class Progress:
    """Print the progress of a command on stderr, at most once a second, and not in its first second.

    Args:
        now: Returns the time, in seconds.
        words: The counted work, such as "outputs read".
    """

    def __init__(self, now: Callable[[], float], words: str) -> None:
        self._now = now
        self._words = words
        self._due: float | None = None

    def tell(self, done: int, total: int) -> None:
        """Report that `done` of `total` are done."""
        now = self._now()
        self._due = now + 1 if self._due is None else self._due
        if now >= self._due and done < total:
            self._due = now + 1
            say(f"{done:,} of {total:,} {self._words}")
