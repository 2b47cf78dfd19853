"""What commands need besides storage: the clock, the processes of this machine, the user at the terminal."""

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
    """The global options, and the parts that tests replace.

    Attributes:
        verbose: Show tracebacks.
        now: Returns the current time, in seconds since the epoch.
        sleep: Sleeps, given seconds.
        ask: Asks a yes-or-no question.
        host: The name of this machine, as in leases and run records.
        is_interactive: Whether a user is there to answer questions.
    """

    verbose: bool = False
    now: Callable[[], float] = time.time
    sleep: Callable[[float], object] = time.sleep
    ask: Callable[[str], bool] = _ask
    host: str = field(default_factory=lambda: os.uname().nodename)
    is_interactive: Callable[[], bool] = lambda: sys.stdin is not None and sys.stdin.isatty()


pass_context = click.make_pass_decorator(CliContext, ensure=True)


def confirmed(context: CliContext, question: str, yes: bool) -> None:
    """Return if the user agrees; raise otherwise.

    Args:
        context: Asks the question.
        question: The question.
        yes: The user has agreed in advance.

    Raises:
        InvalidRequest: No user is there to ask.
        click.Abort: The user declined.
    """
    if yes:
        return
    if not context.is_interactive():
        raise InvalidRequest(f"{question} There is no terminal to ask on; add --yes. Nothing was changed")
    if not context.ask(question):
        raise click.Abort
