"""`iris user budget set|get|list`, `iris user token create|list|revoke`."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, moment, output, say, table
from iris.cli.params import NAME, NumberRange
from rigging.cli.groups import SuggestingGroup
from rigging.clock import unix_ms
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from iris.client import UserBudgetStatus

_COLUMNS: Final = ("user", "max weight", "weight held", "most urgent band")
_BANDS: Final = ("production", "interactive", "batch")


@click.group(cls=SuggestingGroup)
def user() -> None:
    """Manage users' budgets, and tokens that identify users to the cluster."""


@user.group(cls=SuggestingGroup)
def token() -> None:
    """Manage tokens that identify users to the cluster. For admins."""


@token.command()
@click.argument("name", type=NAME, metavar="USER")
@click.option("--note", default="", help="Purpose, shown in the list.")
@click.option(
    "--output", "place", type=click.Path(path_type=Path), metavar="FILE", help="Write the token there, mode 0600."
)
@pass_context
def create(context: CliContext, name: str, note: str, place: Path | None) -> None:
    """Create a token for USER, valid only for the jobs /USER/.... It is shown only now.

    USER sets IRIS_TOKEN_FILE to a file with the token, or names the file as controller.token_file in a cluster config.
    """
    with nullcontext(echo) if place is None else new_private_file(place) as write, context.client() as client:
        write(client.operator.create_token(name, note))
        address = client.address
    if place is not None:
        say(f"the token of user {name} is in {place}; IRIS_TOKEN_FILE={place} iris --controller-url {address} ...")


@token.command("list")
@click.argument("name", type=NAME, metavar="[USER]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def list_tokens(context: CliContext, name: str | None, as_json: bool) -> None:
    """Show the tokens of USER (default: of all users): creator, time, and whether they are revoked."""
    with context.client() as client:
        found = client.operator.user_tokens(name or "")
    if not found and not as_json:
        say("there are no tokens; `iris user token create USER` creates one")
    now = unix_ms()
    rows = [
        [
            item.token_id,
            item.user,
            f"revoked by {item.revoked_by}" if item.revoked_at_ms else "good",
            f"{item.created_by}, {moment(item.created_at_ms, now)}" if item.created_by else "-",
            item.note or "-",
        ]
        for item in found
    ]
    output(as_json).rows(("token", "user", "state", "made by", "note"), rows, [item.to_json() for item in found])


@token.command()
@click.argument("token_id", type=NAME, metavar="TOKEN")
@pass_context
def revoke(context: CliContext, token_id: str) -> None:
    """Revoke TOKEN (an id from the list), also for open connections. Running jobs continue.

    signed-USER stands for all tokens that earlier releases created for USER.
    """
    with context.client() as client:
        done = client.operator.revoke_user_token(token_id)
    say(f"the token {token_id} of user {done.user} is revoked; jobs of {done.user} continue")


@contextmanager
def new_private_file(place: Path) -> Iterator[Callable[[str], None]]:
    """Create a file that only its owner can read, and yield a function that writes its text. Remove the file if the
    body fails.

    Use this to create the file before the secret.

    Raises:
        InvalidRequest: The file exists, or cannot be created or written.
    """
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidRequest(f"cannot write {place}: {error.strerror}") from None

    def write(text: str) -> None:
        try:
            file.write(f"{text}\n")
            file.flush()
        except OSError as error:
            raise InvalidRequest(f"cannot write {place}: {error.strerror}") from None

    with os.fdopen(descriptor, "w") as file:
        try:
            yield write
        except BaseException:
            place.unlink(missing_ok=True)
            raise


@user.group(cls=SuggestingGroup)
def budget() -> None:
    """Limits on a user's concurrent use and priority.

    Weight: a core or 4 GiB of memory is 1 (the larger counts), a GPU or TPU chip is 32. Requests beyond the maximum run
    as batch.
    """


@budget.command("set")
@click.argument("name", type=NAME, metavar="USER")
@click.option(
    "--max-weight",
    "--limit",
    "max_weight",
    type=NumberRange(min=0, max=1e12),
    metavar="N",
    help="Limit; 0 for none.  [default: unchanged]",
)
@click.option("--max-band", type=click.Choice(_BANDS), help="Most urgent allowed band.  [default: unchanged]")
@pass_context
def set_command(context: CliContext, name: str, max_weight: float | None, max_band: str | None) -> None:
    """Set the limits of USER."""
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
    """Show the limits and use of USER."""
    with context.client() as client:
        found = client.operator.budgets(name)
    output(as_json).record(table(_COLUMNS, _rows(found)), found[0].to_json())


@budget.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def list_command(context: CliContext, as_json: bool) -> None:
    """List all users with limits."""
    with context.client() as client:
        found = client.operator.budgets()
    if not found and not as_json:
        say("no user has a budget: usage is not limited")
    output(as_json).rows(_COLUMNS, _rows(found), [item.to_json() for item in found])


def _rows(found: "Sequence[UserBudgetStatus]") -> list[list[str]]:
    return [[item.user, _weight(item.max_weight), f"{item.held_weight:g}", item.max_band.word] for item in found]


def _weight(weight: float) -> str:
    return f"{weight:g}" if weight else "no limit"
