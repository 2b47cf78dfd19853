"""Runs a cluster file on this machine, and shows scale groups and slices in `iris cluster status`."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iris.cli.context import CliContext
from iris.cli.output import duration, say, table
from rigging.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from iris.client import ClusterStatus, ScaleGroupStatus, SliceStatus, WorkerStatus
    from iris.local.start import LocalCluster


def start_run(
    context: CliContext,
    file: Path,
    *,
    idle: float,
    foreground: bool,
    max_hosts: int,
    remote_state_dir: str | None,
    durability: str | None,
) -> None:
    """Run the scale groups of a cluster file on this machine, with simulated slices.

    Args:
        context: Creates the cluster.
        file: The cluster file, whose name is the cluster's.
        idle: Exit after this many seconds without work; 0 for never.
        foreground: Run in this terminal.
        max_hosts: Maximum number of running hosts.
        remote_state_dir: The remote state directory.
        durability: Where a submission is stored before it is acknowledged.

    Raises:
        InvalidRequest: The file is invalid. Conflict: Another file with the same name is running. Unavailable: The
            cluster did not start.
    """
    from iris.local.fleet.file import ignored_rules, prepare_run
    from iris.local.saved_clusters import saved_cluster
    from iris.local.settings import read_settings
    from iris.local.start import controller_environment, foreground_command
    from iris.local.state import named_paths

    if saved_cluster(os.environ, file.stem) is not None:
        raise Conflict(
            f"{file.stem} is the name of a cluster that `iris cluster start` started elsewhere; stop that one first, "
            "or run a copy of the file with another name"
        )
    paths = named_paths(os.environ, file.stem)
    cluster = context.local_cluster(paths=paths, idle_exit_seconds=idle, on_event=say)
    if cluster.find() is not None:
        runs = read_settings(paths).config
        if foreground or Path(runs).resolve() != file.resolve():
            raise Conflict(
                f"cluster {file.stem} runs already, from {runs}; end it with `iris --config {runs} cluster stop`"
            )
        _tell(cluster, file)
        return
    plan = prepare_run(paths, file, max_hosts, remote_state_dir or "", durability or "")
    for name, why in plan.left_out:
        say(f"scale group {name}: {why}")
    if ignored_rules(file):
        say("defaults.autoscaler has no effect here: unused slices end after 1 min, and --max-hosts limits hosts")
    if foreground:
        command = foreground_command(paths, idle)
        context.execute(command, controller_environment(os.environ, paths))
    _tell(cluster, file)


def _tell(cluster: "LocalCluster", file: Path) -> None:
    found = cluster.ensure()
    if found.record.worker_trouble:
        raise Unavailable(f"cluster {file.stem} runs at {found.record.address}, but {found.record.worker_trouble}")
    state = "is ready" if found.started else "runs already"
    say(f"cluster {file.stem} {state} at {found.record.address}; use it with `iris --cluster={file.stem} ...`")


def config_of(context: CliContext, given: Path | None) -> Path | None:
    """Return the cluster file to start, from the option or the global options. Raise UsageError or NotFound."""
    if given is not None and (context.config or context.cluster):
        raise click.UsageError("--config is given twice, or besides --cluster; give only one")
    return given.absolute() if given is not None else context.config_path()


def slice_lines(found: "ClusterStatus") -> list[str]:
    """Return a table of the slices that have workers; empty if there are none."""
    each = {group.name: group.hosts_per_slice for group in found.scale_groups}
    rows = []
    for name, hosts in sorted(_slices(found).items()):
        attributes = hosts[0].attributes
        connected = sum(host.connected for host in hosts)
        rows.append(
            [
                name,
                attributes.get("scale-group", "-"),
                f"{connected}/{max(len(hosts), each.get(attributes.get('scale-group', ''), 0))}",
                hosts[0].device or "-",
                attributes.get("zone") or attributes.get("region") or "-",
                "yes" if attributes.get("preemptible") == "true" else "no",
                str(sum(host.running_tasks for host in hosts)),
            ]
        )
    header = ("slice", "scale group", "hosts", "device", "zone", "preemptible", "tasks")
    return ["", *table(header, rows)] if rows else []


def group_lines(found: "ClusterStatus") -> list[str]:
    """Return a table of the cluster's scale groups and their slices; empty if there are none."""
    there: dict[str, list[int]] = {}
    for hosts in _slices(found).values():
        if any(host.connected for host in hosts):
            there.setdefault(hosts[0].attributes.get("scale-group", ""), []).append(len(hosts))
    rows = [
        [
            group.name,
            f"{sum(many >= group.hosts_per_slice for many in there.get(group.name, ()))}/{group.max_slices}",
            str(group.hosts_per_slice),
            group.device or "-",
            group.attributes.get("zone") or group.attributes.get("region") or "-",
            "yes" if group.attributes.get("preemptible") == "true" else "no",
        ]
        for group in found.scale_groups
    ]
    header = ("scale group", "slices", "hosts each", "device", "zone", "preemptible")
    return ["", *table(header, rows), *filter(None, map(_changing, found.scale_groups))] if rows else []


def coming_lines(slices: "Sequence[SliceStatus]", now_ms: int) -> list[str]:
    """Return a line for each slice that comes, leaves, or has failed a user: since when, and why."""
    lines = []
    for each in slices:
        if each.state not in ("joined", "gone", "failed") or (each.state == "failed" and each.asked_by):
            why = each.reason or each.words
            since = duration((now_ms - each.changed_at_ms) / 1000)
            lines.append(f"{each.name}: {each.state} for {since}{f' ({why})' if why else ''}")
    return lines


def _slices(found: "ClusterStatus") -> "dict[str, list[WorkerStatus]]":
    slices: dict[str, list[WorkerStatus]] = {}
    for worker in found.workers:
        if name := worker.attributes.get("slice"):
            slices.setdefault(name, []).append(worker)
    return slices


def _changing(group: "ScaleGroupStatus") -> str:
    """Return which slices are wanted, boot or have failed, and why none is created; empty if nothing changes."""
    counts = {"wanted": group.demand, "booting": group.booting, "failed": group.failed}
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    if group.outcome:
        until = f"{datetime.fromtimestamp(group.next_try_ms / 1000, UTC):%H:%M:%S} UTC" if group.next_try_ms else ""
        parts.append(f"closed until {until or 'the cluster file changes'} ({group.outcome})")
    parts += [group.trouble] if group.trouble else []
    return f"{group.name}: {', '.join(parts)}" if parts else ""
