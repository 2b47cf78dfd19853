"""`iris cluster worker list|cordon|drain|uncordon|remove`."""

from typing import TYPE_CHECKING, Final

import click

from iris.cli.cluster.hosts import shared_identity_lines
from iris.cli.context import CliContext, pass_context
from iris.cli.output import moment, output, say
from rigging.cli.groups import SuggestingGroup

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.types import WorkerStatus

_SHOWN: Final = 5


@click.group(cls=SuggestingGroup)
def worker() -> None:
    """Inspect workers, and take them out of service."""


@worker.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def list_command(context: CliContext, as_json: bool) -> None:
    """Show every known worker: its state, and why it is cordoned or stuck."""
    with context.client() as client:
        found = client.cluster_status(all_workers=True).workers
    now = context.now_ms()
    rows = [
        [
            item.worker_id,
            item.state,
            str(item.running_tasks),
            str(item.strikes),
            moment(item.last_seen_at_ms, now),
            item.cordon_reason or item.trouble or _copy(item) or "-",
        ]
        for item in found
    ]
    if not rows and not as_json:
        say("no worker is known")
    for line in () if as_json else shared_identity_lines(found):
        say(line)
    output(as_json).rows(
        ("worker", "state", "tasks", "strikes", "since", "because"), rows, [item.to_json() for item in found]
    )


@worker.command()
@click.argument("name", metavar="WORKER")
@click.option("--reason", default="cordoned by an operator", show_default=True, help="Reason, shown with the worker.")
@pass_context
def cordon(context: CliContext, name: str, reason: str) -> None:
    """Assign no new attempts to WORKER. Running ones continue."""
    with context.client() as client:
        client.operator.cordon(_find(client, name), reason)
    say(f"worker {name} is cordoned: {reason}")


@worker.command()
@click.argument("name", metavar="WORKER")
@click.option("--reason", default="drained by an operator", show_default=True, help="Reason, shown with the worker.")
@pass_context
def drain(context: CliContext, name: str, reason: str) -> None:
    """Assign no new attempts to WORKER, and move its running ones elsewhere, without using up retries."""
    with context.client() as client:
        moved = client.operator.cordon(_find(client, name), reason, drain=True)
    names = ", ".join(moved[:_SHOWN]) + (f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else "")
    say(f"worker {name} is drained: {reason}; " + (f"sent elsewhere: {names}" if moved else "nothing ran there"))


@worker.command()
@click.argument("name", metavar="WORKER")
@pass_context
def uncordon(context: CliContext, name: str) -> None:
    """Use WORKER again, and clear its faults."""
    with context.client() as client:
        reason = client.operator.uncordon(_find(client, name))
    say(f"worker {name} is in use again (it was cordoned: {reason})" if reason else f"worker {name} was not cordoned")


@worker.command()
@click.argument("name", metavar="WORKER")
@click.option(
    "--reason", default="removed by an operator", show_default=True, help="Reason, shown as the cause in its attempts."
)
@pass_context
def remove(context: CliContext, name: str, reason: str) -> None:
    """Declare the host of WORKER and everything on it gone, so that nothing waits for it any more.

    Refused while WORKER is connected. Exclusive jobs restart elsewhere immediately: if the host is alive, attempts
    overlap.
    """
    with context.client() as client:
        lost = client.operator.remove_worker(_find(client, name), reason)
    names = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
    say(f"worker {name} is removed; " + (f"no longer waited for: {names}" if lost else "nothing waited for it"))


def _copy(item: "WorkerStatus") -> str:
    return f"a copy of it at {item.rival_address} is refused" if item.rival_address else ""


def _find(client: "IrisClient", name: str) -> str:
    """Return the id of a known worker. Raise NotFound with the nearest name."""
    import difflib

    from rigging.errors import NotFound

    known = [item.worker_id for item in client.cluster_status(all_workers=True).workers]
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`iris cluster worker list` shows what there is"
    raise NotFound(f"no worker {name!r}; {hint}")
