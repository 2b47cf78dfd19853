"""`iris user budget set|get|list`, `iris user token create`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.groups import SuggestingGroup
from iris.cli.output import echo, output, say, table
from iris.cli.params import NAME, NumberRange
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from iris.client import UserBudgetStatus

_COLUMNS: Final = ("user", "max weight", "weight held", "most urgent band")
_BANDS: Final = ("production", "interactive", "batch")


@click.group(cls=SuggestingGroup)
def user() -> None:
    """What users may have of a cluster, and the tokens by which it knows them."""


@user.group(cls=SuggestingGroup)
def token() -> None:
    """The tokens by which a cluster knows its users. For admins."""


@token.command()
@click.argument("name", type=NAME, metavar="USER")
@click.option("--output", "place", type=click.Path(path_type=Path), metavar="FILE", help="Write it there, mode 0600.")
@pass_context
def create(context: CliContext, name: str, place: Path | None) -> None:
    """Make a token for USER, who then acts for the jobs /USER/... and nobody else's.

    USER sets IRIS_TOKEN_FILE to a file that holds it, or names the file as controller.token_file in a cluster config.
    """
    with context.client() as client:
        made = client.operator.create_token(name)
    if place is None:
        echo(made)
        return
    write_private(place, made)
    say(f"the token of user {name} is in {place}; IRIS_TOKEN_FILE={place} iris --controller-url {client.address} ...")


def write_private(place: Path, text: str) -> None:
    """Write a new file that only its owner can read. Raises InvalidRequest when it is there or cannot be made."""
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise InvalidRequest(f"cannot write {place}: {error.strerror}") from None


@user.group(cls=SuggestingGroup)
def budget() -> None:
    """How much a user may hold at a time, and how urgent it may be.

    Weight: a core or 4 GiB of memory is 1 (the larger counts), a GPU or TPU chip 32. What a user asks for beyond the
    maximum is served as batch.
    """


@budget.command("set")
@click.argument("name", type=NAME, metavar="USER")
@click.option(
    "--max-weight",
    "--limit",
    "max_weight",
    type=NumberRange(min=0, max=1e12),
    metavar="N",
    help="0: no limit. [default: as it is]",
)
@click.option("--max-band", type=click.Choice(_BANDS), help="The most urgent band allowed. [default: as it is]")
@pass_context
def set_command(context: CliContext, name: str, max_weight: float | None, max_band: str | None) -> None:
    """Set what USER may have from now on."""
    from iris.cluster.types import PriorityBand

    if max_weight is None and max_band is None:
        raise click.UsageError("give --max-weight, --max-band, or both")
    with context.client() as client:
        before = client.operator.budgets(name)[0]
        weight = before.max_weight if max_weight is None else max_weight
        band = before.max_band if max_band is None else PriorityBand[max_band.upper()]
        client.operator.set_budget(name, max_weight=weight, max_band=band)
    say(f"user {name}: max weight {_weight(weight)}, most urgent band {band.word}")


@budget.command()
@click.argument("name", type=NAME, metavar="USER")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def get(context: CliContext, name: str, as_json: bool) -> None:
    """Show what USER may have, and has."""
    with context.client() as client:
        found = client.operator.budgets(name)
    output(as_json).record(table(_COLUMNS, _rows(found)), found[0].to_json())


@budget.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def list_command(context: CliContext, as_json: bool) -> None:
    """Show everybody for whom something was set."""
    with context.client() as client:
        found = client.operator.budgets()
    if not found and not as_json:
        say("no user has a budget: everybody may use everything")
    output(as_json).rows(_COLUMNS, _rows(found), [item.to_json() for item in found])


def _rows(found: "Sequence[UserBudgetStatus]") -> list[list[str]]:
    return [[item.user, _weight(item.max_weight), f"{item.held_weight:g}", item.max_band.word] for item in found]


def _weight(weight: float) -> str:
    return f"{weight:g}" if weight else "no limit"
