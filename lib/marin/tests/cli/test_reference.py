"""docs/marin-cli.md has every command of `marin`, with its arguments and its options, and no others."""

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
SECTIONS = dict(re.findall(r"^### (marin [a-z ]+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))


def options(command: click.Command) -> set[str]:
    shown = [item for item in command.params if isinstance(item, click.Option) and not item.hidden]
    return {word for item in shown for word in (*item.opts, *item.secondary_opts)}


def test_there_is_a_section_for_each_command() -> None:
    assert set(SECTIONS) == set(COMMANDS)
    assert len(COMMANDS) >= 10


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_has_the_commands_options_and_arguments(name: str) -> None:
    command, section = COMMANDS[name], SECTIONS[name]
    cells = re.findall(r"^\| (`.*?) \| ", section, re.MULTILINE)
    told = {code.split()[0] for cell in cells for code in re.findall(r"`([^`]+)`", cell)}
    assert told == options(command)
    context = click.Context(command, info_name=name)
    usage = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    synopsis = " ".join([name, *usage]).replace("{", "").replace("}", "")
    assert f"`{synopsis}`" in section


def test_options_of_the_program_itself() -> None:
    head = PAGE[PAGE.index("## Commands") : PAGE.index("### marin ")]
    for option in options(cli):
        assert re.search(rf"{option}\b", head), option


def test_every_exit_code_is_told() -> None:
    from marin.cli import exit_codes

    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    table = PAGE[PAGE.index("## Exit codes") :]
    assert codes <= {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
