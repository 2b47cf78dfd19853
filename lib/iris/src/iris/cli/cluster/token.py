"""`iris cluster token create|list|revoke`: tokens with which new workers join. revoke also works for users' tokens."""

import re
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, moment, output, say
from iris.cli.params import NAME
from iris.cli.user import new_private_file
from rigging.cli.groups import SuggestingGroup
from rigging.clock import unix_ms
from rigging.errors import NotFound

if TYPE_CHECKING:
    from iris.client.tokens import JoinTokenStatus

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group(cls=SuggestingGroup)
def token() -> None:
    """Manage join tokens. A new worker gets its own credential with a join token. For admins."""


@token.command()
@click.option("--expires", default="24h", show_default=True, metavar="TIME", help="Lifetime: 90s, 30m, 24h or 7d.")
@click.option(
    "--uses", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Number of workers that may join."
)
@click.option("--note", default="", help="Purpose, shown in the list.")
@click.option(
    "--output", "place", type=click.Path(path_type=Path), metavar="FILE", help="Write the token there, mode 0600."
)
@pass_context
def create(context: CliContext, expires: str, uses: int, note: str, place: Path | None) -> None:
    """Create a join token. It is shown only now, because the controller stores only its digest."""
    lifetime_ms = parse_lifetime(expires)
    with nullcontext(echo) if place is None else new_private_file(place) as write:
        with context.client() as client:
            text, made = client.operator.create_join_token(lifetime_ms=lifetime_ms, max_uses=uses, note=note)
        write(text)
    say(
        f"join token {made.token_id}: for {made.max_uses} worker{'s' if made.max_uses > 1 else ''}, until "
        f"{_date(made.expires_at_ms)}" + (f", in {place}" if place is not None else "")
    )


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def list_command(context: CliContext, as_json: bool) -> None:
    """Show all join tokens: creator, time, and the workers that joined with them. For users' tokens: `iris user token
    list`.
    """
    with context.client() as client:
        found = client.operator.join_tokens()
    now = unix_ms()
    rows = [
        [
            item.token_id,
            _state(item, now),
            f"{item.uses}/{item.max_uses}",
            _date(item.expires_at_ms),
            f"{item.created_by}, {moment(item.created_at_ms, now)}",
            item.note or ", ".join(item.workers) or "-",
        ]
        for item in found
    ]
    if not rows and not as_json:
        say("there are no join tokens; `iris cluster token create` creates one")
    output(as_json).rows(
        ("token", "state", "used", "expires", "made by", "note, or workers"), rows, [item.to_json() for item in found]
    )


@token.command()
@click.argument("token_id", type=NAME, metavar="TOKEN")
@pass_context
def revoke(context: CliContext, token_id: str) -> None:
    """Revoke the join token TOKEN (an id from the list). Workers that already joined stay; see `iris worker revoke`.

    TOKEN may also be a user's token (`iris user token list`): it becomes invalid, and running jobs continue.
    """
    with context.client() as client:
        try:
            done = client.operator.revoke_join_token(token_id)
        except NotFound as error:
            try:
                user = client.operator.revoke_user_token(token_id).user
            except NotFound:
                raise error from None
            say(f"the token {token_id} of user {user} is revoked; jobs of {user} continue")
            return
    joined = f"; {', '.join(done.workers)} joined with it and remain" if done.workers else ""
    say(f"the join token {token_id} is revoked{joined}")


def parse_lifetime(text: str) -> int:
    """Return the milliseconds in "90s", "30m", "24h" or "7d". Raise UsageError."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if match is None or not int(match[1]):
        raise click.UsageError(f"--expires {text!r}: write a whole number and s, m, h or d, e.g. 90s, 30m, 24h, 7d")
    return int(match[1]) * _UNITS[match[2]] * 1000


def _date(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")


def _state(item: "JoinTokenStatus", now_ms: int) -> str:
    if item.revoked_at_ms:
        return f"revoked by {item.revoked_by}"
    if item.uses >= item.max_uses:
        return "used up"
    return "expired" if now_ms >= item.expires_at_ms else "good"
