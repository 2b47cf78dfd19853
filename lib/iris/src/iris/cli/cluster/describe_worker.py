"""`iris cluster worker describe`."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.cluster.chosen_workers import find_worker
from iris.cli.cluster.events import BOOKKEEPING, line_of, read_events
from iris.cli.cluster.hosts import host_cells, rival_lines
from iris.cli.context import CliContext, pass_context
from iris.cli.output import moment, output, table
from iris.cli.params import WORKER
from rigging.errors import Denied, NotFound
from rigging.text.quantities import format_size

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.types import AttemptUsage, WorkerStatus

_LAST: Final = 8


@click.command()
@click.argument("name", type=WORKER, metavar="WORKER")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def describe(context: CliContext, name: str, as_json: bool) -> None:
    """Show a worker: state, attributes, capacity, usage, attempts, and last events."""
    with context.client() as client:
        found = client.workers([name])
        if not found:
            find_worker(client.cluster_status(all_workers=True).workers, name)
            raise NotFound(f"worker {name} was removed just now")
        (worker,) = found
        events = _events(client, name)
    record = {**worker.to_json(), "events": events}
    output(as_json).record(_lines(worker, events, context.now_ms()), record)


def _events(client: "IrisClient", name: str) -> list[dict[str, Any]]:
    """Return the worker's last events, oldest first; none if the user may not query."""
    wanted = ["'" + name.replace("'", "''") + "' IN (worker_id, subject)", f"kind NOT IN {BOOKKEEPING}"]
    with contextlib.suppress(Denied):
        return read_events(client, wanted, f"ORDER BY sequence DESC LIMIT {_LAST}", _LAST)[::-1]
    return []


def _lines(worker: "WorkerStatus", events: Sequence[dict[str, Any]], now_ms: int) -> list[str]:
    address, version, clock = host_cells(worker)
    who = worker.cordoned_by or "the controller"
    since = f"by {who}, {moment(worker.cordoned_at_ms, now_ms)}" if worker.cordoned_at_ms else "time unknown"
    facts = [
        ("worker", worker.worker_id),
        ("state", worker.state),
        ("cordoned", f"{worker.cordon_reason} ({since})" if worker.cordon_reason else ""),
        ("trouble", worker.trouble),
        ("strikes", str(worker.strikes) if worker.strikes else ""),
        ("connected" if worker.connected else "last seen", moment(worker.last_seen_at_ms, now_ms)),
        ("address", address),
        ("version", version),
        ("clock", clock),
    ]
    lines = [f"{label + ':':<11} {text}" for label, text in facts if text and text != "-"] + rival_lines([worker])
    lines += ["", *table(("resource", "capacity", "promised", "used"), _resources(worker))]
    attributes = [[name, value] for name, value in sorted(worker.attributes.items())]
    lines += ["", *table(("attribute", "value"), attributes)] if attributes else []
    attempts = [
        [one.attempt_id, one.state, *(_used([one.usage]) if one.usage is not None else ("-", "-"))]
        for one in worker.attempts or ()
    ]
    lines += ["", *table(("attempt", "state", "cores", "memory"), attempts)] if attempts else []
    return lines + (["", "last events:", *(f"  {line_of(event)}" for event in events)] if events else [])


def _resources(worker: "WorkerStatus") -> list[list[str]]:
    uses = [one.usage for one in worker.attempts or () if one.usage is not None]
    cores, memory = _used(uses)
    disk = sum(use.disk_bytes for use in uses)
    rows = [
        ["cpu", f"{worker.cpu:g}", f"{worker.committed_cpu:g}", cores],
        ["memory", format_size(worker.memory_bytes), format_size(worker.committed_memory_bytes), memory],
        ["disk", format_size(worker.disk_bytes), format_size(worker.committed_disk_bytes), format_size(disk)],
    ]
    return rows + ([["device", worker.device, str(worker.committed_devices), "-"]] if worker.device else [])


def _used(uses: "Sequence[AttemptUsage]") -> tuple[str, str]:
    return f"{sum(use.cpu_cores for use in uses):.2f}", format_size(sum(use.memory_bytes for use in uses))
