"""Surroundings of commands besides storage: the clock, the processes of this machine, the person at the terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import click

from rigging.errors import InvalidRequest


def _ask(question: str) -> bool:
    return click.confirm(question, default=False, err=True)


@dataclass(slots=True)
class CliContext:
    """The global options, and the seams of the commands.

    Attributes:
        verbose: Show tracebacks.
        now: Returns the time, in seconds since the epoch.
        sleep: Waits for so many seconds.
        ask: Asks a yes-or-no question.
        host: This machine's name, as holders of leases and runs give it.
        is_interactive: Whether somebody is there who can be asked.
    """

    verbose: bool = False
    now: Callable[[], float] = time.time
    sleep: Callable[[float], object] = time.sleep
    ask: Callable[[str], bool] = _ask
    host: str = field(default_factory=lambda: os.uname().nodename)
    is_interactive: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty()


pass_context = click.make_pass_decorator(CliContext, ensure=True)


def confirmed(context: CliContext, question: str, yes: bool) -> None:
    """Return when the user agrees.

    Args:
        context: Asks.
        question: The question.
        yes: The user has agreed beforehand.

    Raises:
        InvalidRequest: Nobody is there who can be asked.
        click.Abort: The user does not agree.
    """
    if yes:
        return
    if not context.is_interactive():
        raise InvalidRequest(f"{question} nobody is at the terminal to say so; say --yes. Nothing was changed")
    if not context.ask(question):
        raise click.Abort
