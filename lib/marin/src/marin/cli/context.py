"""The environment of commands besides storage: the clock, this machine's processes, the user at the terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import click

from rigging.cli.asking import ask, is_interactive


@dataclass(slots=True)
class CliContext:
    """The global options, and the parts that tests replace.

    Attributes:
        verbose: Show tracebacks.
        now: Returns the current time, in seconds since the epoch.
        sleep: Sleeps, given seconds.
        ask: Asks a yes-or-no question.
        host: The name of this machine, as in leases and run records.
        is_interactive: Whether a user can answer questions at a terminal.
    """

    verbose: bool = False
    now: Callable[[], float] = time.time
    sleep: Callable[[float], object] = time.sleep
    ask: Callable[[str], bool] = ask
    host: str = field(default_factory=lambda: os.uname().nodename)
    is_interactive: Callable[[], bool] = is_interactive


pass_context = click.make_pass_decorator(CliContext, ensure=True)
