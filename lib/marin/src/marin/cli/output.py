"""Results of commands on stdout: tables for people, JSON for programs. Remarks go to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from rigging.cli.output import Output, complain, echo, echo_json
from rigging.text.printable import printable

__all__ = ["Output", "echo", "echo_json", "echo_painted", "say"]


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


def say(text: str) -> None:
    """Tell the user something on stderr; a closed stderr does not end the command."""
    complain(f"marin: {text}\n")
