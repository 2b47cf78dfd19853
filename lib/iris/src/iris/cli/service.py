"""`install-service` for controllers and workers: writes a systemd unit that runs a command."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from iris.cli.output import echo, say
from iris.cli.params import NAME

Command = TypeVar("Command", bound=Callable[..., object])


def service_options(default_name: str) -> Callable[[Command], Command]:
    """Return a decorator with the options of every install-service."""

    def add(command: Command) -> Command:
        command = click.option("--user", "as_user", is_flag=True, help="For your own systemd, without root.")(command)
        command = click.option("--print", "only_print", is_flag=True, help="Print the unit without writing it.")(
            command
        )
        return click.option("--service-name", type=NAME, default=default_name, show_default=True)(command)

    return add


def install(
    description: str,
    words: Sequence[str],
    *,
    service_name: str,
    as_user: bool,
    only_print: bool,
    leaves_tasks: bool,
    limits_tasks: bool = False,
) -> None:
    """Write or print the unit that runs `iris WORDS`.

    Args:
        description: A one-line description.
        words: The arguments of the program.
        service_name: The unit's name.
        as_user: Whether to use the user's own systemd.
        only_print: Print without writing.
        leaves_tasks: As in `unit_text`.
        limits_tasks: Whether the service divides its control group among its tasks.
    """
    from iris.local.services import (
        Delegation,
        host_delegation,
        install_unit,
        iris_command,
        start_hint,
        unit_path,
        unit_text,
    )

    text = unit_text(
        description,
        iris_command(*words),
        as_user=as_user,
        leaves_tasks=leaves_tasks,
        delegation=host_delegation() if limits_tasks else Delegation.NONE,
    )
    place = unit_path(service_name, as_user=as_user, environ=os.environ)
    if only_print:
        echo(text.rstrip("\n"))
        return
    complaint = install_unit(place, text)
    if complaint:
        say(f"systemd says: {complaint}")
    say(f"wrote {place}; start it now and at each boot: {start_hint(place, as_user=as_user)}")


def option_words(given: Mapping[str, Any]) -> list[str]:
    """Return the given options as arguments, with absolute paths. Omit options that were not given."""
    words: list[str] = []
    for name, value in given.items():
        option = "--" + name.removesuffix("_name").replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, tuple):
            words += [word for item in value for word in (option, item)]
        elif isinstance(value, Path):
            words += [option, str(value.expanduser().absolute())]
        elif value is not None and value is not False:
            words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    return words
