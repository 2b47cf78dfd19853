"""`marin locks`: list the leases below a storage root, and remove abandoned ones."""

from __future__ import annotations

from collections.abc import Sequence

import click

from marin.cli import exit_codes
from marin.cli.context import CliContext, pass_context
from marin.cli.options import STEP, json_option, prefix_option
from marin.cli.output import Output, echo_json, say
from marin.output_files import LOCK_FILE
from marin.recorded.deciding.leases import CLEARABLE, LeaseSeen
from marin.recorded.reading.places import storage_root
from rigging.cli.asking import confirmed
from rigging.cli.groups import SuggestingGroup
from rigging.errors import InvalidRequest, NotFound
from rigging.text.tables import duration

_COLUMNS = ("state", "age", "holder", "lock")


@click.group(cls=SuggestingGroup)
def locks() -> None:
    """List the leases of running steps, and clear leases whose holders are gone."""


@locks.command("list")
@click.argument("prefix", type=click.STRING, required=False)
@json_option
@pass_context
def list_locks(context: CliContext, prefix: str | None, as_json: bool) -> None:
    """List all leases below PREFIX (default: MARIN_PREFIX) with their holders, and whether they are renewed."""
    from marin.recorded.reading.leases import find_leases

    root = storage_root(prefix)
    found = find_leases(root, context.now())
    Output(as_json).rows(_COLUMNS, [_cells(lease) for lease in found], [lease.to_json() for lease in found])
    if not found:
        say(f"no leases below {root}")


@locks.command("clear")
@click.argument("steps", type=STEP, metavar="[STEP]...", nargs=-1)
@click.option("--force", is_flag=True, help="Remove the leases of the named STEPs even if their holders may still run.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@prefix_option
@json_option
@pass_context
def clear_locks(
    context: CliContext, steps: tuple[str, ...], force: bool, yes: bool, prefix: str | None, as_json: bool
) -> int:
    """Remove abandoned leases: those of the named STEPs, or all below the prefix.

    Runs take over abandoned leases by themselves. Use this command if you will not run the step again. If a holder is
    still running, its attempt can no longer succeed.
    """
    if force and not steps:
        raise InvalidRequest("--force needs the names of the steps; it cannot remove all leases at once")
    from marin.recorded.reading.leases import clear_lease

    found = _meant(storage_root(prefix), steps, context.now())
    chosen = [lease for lease in found if force or lease.state in CLEARABLE]
    left = [(lease, f"its holder may still run ({lease.state})") for lease in found if lease not in chosen]
    if chosen:
        if not as_json:
            Output(False).rows(_COLUMNS, [_cells(lease) for lease in chosen], [])
        confirmed(context, f"remove {len(chosen)} lease(s)?", yes)
    cleared = []
    for lease in chosen:
        problem = clear_lease(lease)
        if problem is None:
            cleared.append(lease)
        else:
            left.append((lease, problem))
    for lease, reason in left:
        say(f"kept: {lease.path}: {reason}")
    say(f"{len(cleared)} lease(s) removed, {len(left)} kept")
    if as_json:
        kept = [{**lease.to_json(), "reason": reason} for lease, reason in left]
        echo_json({"cleared": [lease.to_json() for lease in cleared], "left": kept})
    # Without names, what is at work is not what was asked for.
    return exit_codes.FOUND if left and (steps or len(cleared) < len(chosen)) else exit_codes.OK


def _meant(root: str, steps: Sequence[str], now: float) -> list[LeaseSeen]:
    from marin.recorded.reading.leases import find_leases, read_leases
    from marin.recorded.reading.steps import find_step
    from marin.recorded.reading.store import below

    if not steps:
        return find_leases(root, now)
    paths = [
        step if step.endswith(".lock") and "/" in step else below(find_step(root, step), LOCK_FILE) for step in steps
    ]
    found = read_leases(paths, root, now)
    missing = sorted(set(paths) - {lease.path for lease in found})
    if missing:
        raise NotFound(f"no lease at {', '.join(missing)}")
    return found


def _cells(lease: LeaseSeen) -> list[str]:
    return [lease.state, duration(lease.age), lease.holder or "-", lease.path]
