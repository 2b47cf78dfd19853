"""docs/marin-cli.md has every command of `marin` with its arguments and exit codes, and no option that is not there."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from marin.cli.main import cli

PAGE = (Path(__file__).parents[4] / "docs" / "marin-cli.md").read_text()


def commands(group: click.Group, above: str = "marin") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{above} {name}")
        else:
            yield f"{above} {name}", command


COMMANDS = dict(commands(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_told_with_its_arguments(name: str) -> None:
    pieces = COMMANDS[name].collect_usage_pieces(click.Context(COMMANDS[name], info_name=name))
    synopsis = " ".join([name, *(piece for piece in pieces if piece != "[OPTIONS]")])
    assert f"**`{synopsis.replace('{', '').replace('}', '')}`**" in PAGE


def test_options_and_exit_codes() -> None:
    from marin.cli import exit_codes

    known = {
        word for command in (cli, *COMMANDS.values()) for item in command.params for word in (*item.opts, "--help")
    }
    assert set(re.findall(r"`(--?[a-z][a-z-]*)", PAGE)) <= known
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    table = PAGE[PAGE.index("## Exit codes") :]
    assert codes <= {int(code) for code in re.findall(r"^- (\d+): ", table, re.MULTILINE)}
