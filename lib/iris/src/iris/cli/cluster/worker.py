"""`iris cluster worker list|describe|cordon|drain|uncordon|remove`."""

from typing import TYPE_CHECKING, Any

import click

from iris.cli.cluster.chosen_workers import WorkerChoice, choose_workers, find_worker
from iris.cli.cluster.describe_worker import describe
from iris.cli.cluster.hosts import shared_identity_lines
from iris.cli.context import CliContext, pass_context
from iris.cli.exit_codes import OK
from iris.cli.output import listed, moment, output, say
from iris.cli.params import SPAN, WORKER
from iris.domain.constraints import LIMITS_ATTRIBUTE
from rigging.cli.groups import SuggestingGroup

if TYPE_CHECKING:
    from iris.client.types import WorkerStatus


@click.group(cls=SuggestingGroup)
def worker() -> None:
    """Inspect workers, and take them out of service."""


worker.add_command(describe)


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
            moment(item.cordoned_at_ms or item.last_seen_at_ms, now),
            item.attributes.get(LIMITS_ATTRIBUTE, "-"),
            item.cordon_reason or item.trouble or _copy(item) or "-",
        ]
        for item in found
    ]
    if not rows and not as_json:
        say("no worker is known")
    for line in () if as_json else shared_identity_lines(found):
        say(line)
    output(as_json).rows(
        ("worker", "state", "tasks", "strikes", "since", "limits", "because"), rows, [item.to_json() for item in found]
    )


@worker.command()
@choose_workers
@click.option("--reason", default="cordoned by an operator", show_default=True, help="Reason, shown with the workers.")
@pass_context
def cordon(context: CliContext, /, reason: str, **chosen: Any) -> None:
    """Assign no new attempts to workers. Running attempts continue."""
    with context.client() as client:
        for name in WorkerChoice(**chosen).find(context, client, "cordon"):
            client.operator.cordon(name, reason)
            say(f"worker {name} is cordoned: {reason}")


@worker.command()
@choose_workers
@click.option("--reason", default="drained by an operator", show_default=True, help="Reason, shown with the workers.")
@click.option("--wait", "waits", is_flag=True, help="Return when nothing is left on the workers.")
@click.option("--deadline", type=SPAN, metavar="T", help="With --wait: exit with code 7 after this time, e.g. 10m.")
@pass_context
def drain(context: CliContext, /, reason: str, waits: bool, deadline: float | None, **chosen: Any) -> int:
    """Assign no new attempts to workers, and move running attempts elsewhere, without using up retries."""
    from iris.cli.cluster.emptying import await_empty

    if deadline is not None and not waits:
        raise click.UsageError("--deadline has no effect without --wait: give both, or neither")
    with context.client() as client:
        names = WorkerChoice(**chosen).find(context, client, "drain")
        for name in names:
            moved = client.operator.cordon(name, reason, drain=True)
            where = f"sent elsewhere: {listed(moved)}" if moved else "it had no attempts"
            say(f"worker {name} is drained: {reason}; {where}")
        return await_empty(context, client, names, deadline) if waits else OK


@worker.command()
@choose_workers
@pass_context
def uncordon(context: CliContext, /, **chosen: Any) -> None:
    """Use workers again, and reset their failure counts."""
    with context.client() as client:
        for name in WorkerChoice(**chosen).find(context, client, "uncordon"):
            was = client.operator.uncordon(name)
            say(f"worker {name} is in use again (it was cordoned: {was})" if was else f"worker {name} was not cordoned")


@worker.command()
@click.argument("names", type=WORKER, metavar="WORKER...", nargs=-1, required=True)
@click.option(
    "--reason", default="removed by an operator", show_default=True, help="Reason, shown as the cause in its attempts."
)
@pass_context
def remove(context: CliContext, names: tuple[str, ...], reason: str) -> None:
    """Declare the hosts of workers and everything on them gone, so that no job waits for them any more.

    Refused for connected workers. Exclusive jobs restart elsewhere immediately: if the host is alive, attempts
    overlap.
    """
    with context.client() as client:
        known = client.cluster_status(all_workers=True).workers
        for name in [find_worker(known, name) for name in dict.fromkeys(names)]:
            lost = client.operator.remove_worker(name, reason)
            waited = f"no longer waited for: {listed(lost)}" if lost else "no attempt waited for it"
            say(f"worker {name} is removed; {waited}")


def _copy(item: "WorkerStatus") -> str:
    return f"a copy of it at {item.rival_address} is refused" if item.rival_address else ""
