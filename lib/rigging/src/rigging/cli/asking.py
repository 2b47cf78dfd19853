"""Ask the user at the terminal before a command changes much."""

import sys
from collections.abc import Callable
from typing import Protocol

import click

from rigging.errors import InvalidRequest


class Asking(Protocol):
    """The parts of a command's context that ask."""

    @property
    def ask(self) -> Callable[[str], bool]:
        """Asks a yes-or-no question."""

    @property
    def is_interactive(self) -> Callable[[], bool]:
        """Whether a user can answer questions at a terminal."""


def ask(question: str) -> bool:
    """Return whether the user at the terminal says yes. The default is no."""
    return click.confirm(question, default=False, err=True)


def is_interactive() -> bool:
    """Return whether a user can answer questions at a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirmed(context: Asking, question: str, yes: bool) -> None:
    """Return if the user agrees; raise otherwise.

    Args:
        context: Asks the question.
        question: The question.
        yes: The user has agreed in advance.

    Raises:
        InvalidRequest: No user can answer.
        click.Abort: The user declined.
    """
    if yes:
        return
    if not context.is_interactive():
        raise InvalidRequest(f"{question} There is no terminal to ask on; add --yes. Nothing was changed")
    if not context.ask(question):
        raise click.Abort
