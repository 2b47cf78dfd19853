"""`iris cluster start|list|status|stop`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from iris.cli import exit_codes
from iris.cli.cluster.certs import certs
from iris.cli.cluster.controller import controller, storage_lines
from iris.cli.cluster.events import audit, events
from iris.cli.cluster.files import import_command, validate
from iris.cli.cluster.hosts import HOST_COLUMNS, clock_lines, host_cells, rival_lines, shared_identity_lines
from iris.cli.cluster.listing import list_command
from iris.cli.cluster.local_run import coming_lines, config_of, group_lines, slice_lines, start_run
from iris.cli.cluster.slices import create_slice, delete_slice
from iris.cli.cluster.token import token
from iris.cli.cluster.worker import worker
from iris.cli.context import CliContext, pass_context
from iris.cli.output import duration, output, say, table, told_if_slow
from iris.cli.params import COUNT, SECONDS_OR_ZERO
from rigging.cli.groups import LazyGroup
from rigging.errors import MarinError, Unavailable
from rigging.text.quantities import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris.client import ClusterStatus, IrisClient, SliceStatus
    from iris.local.start import LocalCluster
    from iris.local.state import ClusterRecord
    from iris.local.stop import ClusterProcesses

_SHOWN_JOBS: Final = 5
_REMOTE_HELP: Final = "Also keep the state there: gs://..., s3://..., a path; '' for nowhere."
_CONFIG_HELP: Final = "Cluster file to run, or storage settings for your local cluster."
_IDLE_HELP: Final = "Exit after this time without work; 0 for never.  [default: 900]"


# They need asyncio, which the help of the others does without.
_LAZY: Final = {
    "dashboard": ("iris.cli.cluster.dashboard", "dashboard", "Open the cluster's pages in a browser."),
    "vm": ("iris.cli.cluster.vm", "vm", "Inspect the cluster's machines, also while its controller does not answer."),
}


@click.group(cls=LazyGroup, places=_LAZY)
def cluster() -> None:
    """Start, inspect and stop clusters."""


@cluster.command()
@click.argument("file", required=False)
@click.option("--local", is_flag=True, help="Your own cluster on this machine.")
@click.option("--idle-timeout", type=SECONDS_OR_ZERO, metavar="SECONDS", help=_IDLE_HELP)
@click.option("--foreground", is_flag=True, help="Run in this terminal with its log; Ctrl-C stops the cluster.")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help=_CONFIG_HELP)
@click.option(
    "--max-hosts", type=COUNT, default=16, show_default=True, help="Maximum number of hosts of simulated slices."
)
@click.option("--remote-state-dir", metavar="URL", help=_REMOTE_HELP)
@click.option(
    "--durability", type=click.Choice(["local", "remote"]), help="Where a submit is stored before it is acknowledged."
)
@pass_context
def start(
    context: CliContext,
    file: str | None,
    local: bool,
    config: Path | None,
    max_hosts: int,
    idle_timeout: float | None,
    foreground: bool,
    remote_state_dir: str | None,
    durability: str | None,
) -> None:
    """Start a cluster. Has no effect on a running cluster.

    FILE (a path or a cluster's name) with controller.gcp or .manual: create the controller's machine, or find it, and
    wait for the controller. An interrupted start is finished by the next one. Needs no other option.

    With --local, a FILE with scale_groups runs as a separate cluster with FILE's name. Its slices are simulated on this
    machine and start on demand. Any other FILE sets the storage of your local cluster. Options about the state are
    saved, and also apply when the cluster starts by itself; --remote-state-dir '' removes that setting.
    """
    from iris.cli.cluster.elsewhere import name_file, start_elsewhere
    from iris.local.fleet.file import has_slices
    from iris.local.start import DEFAULT_IDLE_EXIT_SECONDS, controller_environment, foreground_command

    name_file(context, file, config)
    path = config_of(context, config)
    if path is not None and not local and start_elsewhere(context, path):
        return
    if not local or context.controller_url:
        raise click.UsageError(
            "give a FILE with controller.gcp or .manual, or start your own cluster: iris cluster start --local [FILE]"
        )
    idle = DEFAULT_IDLE_EXIT_SECONDS if idle_timeout is None else idle_timeout
    if path is not None and has_slices(path):
        start_run(
            context, path, idle=idle, foreground=foreground, max_hosts=max_hosts,
            remote_state_dir=remote_state_dir, durability=durability,
        )  # fmt: skip
        return
    if context.cluster not in (None, "local"):
        raise click.UsageError(f"{path} has no scale_groups: {context.cluster} has nothing to run here")
    local_cluster = context.local_cluster(idle_exit_seconds=idle, on_event=say)
    if remote_state_dir is not None or durability is not None or path is not None:
        _keep_settings(path, local_cluster, remote_state_dir, durability)
    if foreground:
        if local_cluster.find() is not None:
            raise click.UsageError("the local cluster is already running; stop it first with `iris cluster stop`")
        local_cluster.paths.make()
        command = foreground_command(local_cluster.paths, idle)
        context.execute(command, controller_environment(os.environ, local_cluster.paths))
    found = local_cluster.ensure()
    if found.record.worker_trouble:
        raise Unavailable(f"the local cluster runs at {found.record.address} without a worker")
    say(f"the local cluster {'is ready' if found.started else 'runs already'} at {found.record.address}")
    if not found.started and idle_timeout is not None and found.record.idle_exit_seconds != idle:
        say(f"its idle timeout stays {found.record.idle_exit_seconds:g} s; stop it first to change that")


def _keep_settings(
    path: Path | None, local: "LocalCluster", remote_state_dir: str | None, durability: str | None
) -> None:
    from iris.local.controller import local_config
    from iris.local.settings import LocalSettings, read_settings, write_settings

    if local.find() is not None:
        raise click.UsageError("the local cluster is already running; stop it first with `iris cluster stop`")
    local.paths.make()
    before = read_settings(local.paths)
    settings = LocalSettings(
        str(path) if path else before.config,
        before.remote_state_dir if remote_state_dir is None else remote_state_dir,
        ("" if remote_state_dir == "" else before.durability) if durability is None else durability,
    )
    write_settings(local.paths, settings)
    try:
        local_config(local.paths)  # a mistake is told here, and does not stay
    except MarinError:
        write_settings(local.paths, before)
        raise


@cluster.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def status(context: CliContext, as_json: bool) -> int:
    """Show the controller and its workers. Starts no cluster (exit code 5: no local cluster is running)."""
    from iris.client.connection.cluster_files import not_running
    from iris.client.connection.discovery import running_cluster
    from iris.local.state import lock_holder

    target = context.target()
    if target.is_local:
        local = context.local_of(target)
        record = local.find()
        if record is None:
            holder = lock_holder(local.paths.controller_lock)
            none = f"no local cluster runs (state in {local.paths.root}); `iris cluster start --local` starts one"
            text = (
                (none if target.paths is None else not_running(target.name, target.file))
                if holder is None
                else f"the local cluster's controller (process {holder}) does not answer: it is starting, exiting or "
                "hanging; "
                "`iris cluster stop --force` ends it"
            )
            if as_json:
                hung = {} if holder is None else {"pid": holder}
                output(True).record([], {"running": False, "state_dir": str(local.paths.root), **hung})
            else:
                say(text)
            return exit_codes.UNREACHABLE
        target = running_cluster(record, target.name)
    with context.connect(target) as client:
        found = client.cluster_status(all_workers=True)
        slices = client.operator.slices() if found.scale_groups else []
        address = client.address
    output(as_json).record(
        _status_lines(found, slices, address, context.now_ms()),
        {"running": True, "address": address, **found.to_json(), "slices": [each.to_json() for each in slices]},
    )
    return exit_codes.OK


def _status_lines(found: "ClusterStatus", slices: "Sequence[SliceStatus]", address: str, now_ms: int) -> list[str]:
    idle = (
        f"exits after {duration(found.idle_exit_seconds)} idle" if found.idle_exit_seconds else "never exits when idle"
    )
    lines = [
        f"controller: {address} (iris {found.version}, process {found.pid}, up "
        f"{duration((now_ms - found.started_at_ms) / 1000)}, {idle})",
        f"state:      {found.state_dir}",
        f"tasks:      {found.running_tasks} running, {found.pending_tasks} pending",
    ]
    lines += storage_lines(found, now_ms)
    lines += [f"partition:  {found.partition}"] if found.partition else []
    lines += [f"worker:     does not start: {found.worker_trouble}"] if found.worker_trouble else []
    lines += [
        f"worker:     {worker.worker_id} takes no tasks: {worker.trouble}" for worker in found.workers if worker.trouble
    ]
    lines += (
        clock_lines(found.workers)
        + rival_lines(found.workers)
        + [f"identity:   {line}" for line in shared_identity_lines(found.workers)]
    )
    are_elsewhere = any(worker.address not in ("", "unix") for worker in found.workers)
    rows = [
        [
            worker.worker_id,
            worker.state,
            f"{worker.used_cpu:.1f}",
            f"{worker.committed_cpu:g}/{worker.cpu:g}",
            format_size(worker.used_memory_bytes),
            f"{format_size(worker.committed_memory_bytes)}/{format_size(worker.memory_bytes)}",
            worker.device or "-",
            str(worker.running_tasks),
            *(host_cells(worker) if are_elsewhere else ()),
        ]
        for worker in found.workers
    ]
    columns = ("worker", "state", "cpu used", "promised", "memory used", "promised", "device", "tasks")
    workers = ["", *table((*columns, *(HOST_COLUMNS if are_elsewhere else ())), rows)]
    return [*lines, *group_lines(found), *coming_lines(slices, now_ms), *slice_lines(found), *workers]


@cluster.command()
@click.argument("file", required=False)
@click.option("--force", is_flag=True, help="Also stop live jobs, and kill a cluster that does not answer.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before deleting machines.")
@click.option("--dry-run", is_flag=True, help="Only list the machines to delete.")
@pass_context
def stop(context: CliContext, file: str | None, force: bool, yes: bool, dry_run: bool) -> None:
    """Stop a cluster. If it has live jobs, this needs --force.

    Of a cluster with controller.gcp or .manual, this deletes every machine with the cluster's label, also while the
    controller does not answer, and verifies that none is left. An interrupted stop is finished by the next one.
    """
    from iris.cli.cluster.elsewhere import cluster_elsewhere, name_file, stop_elsewhere
    from iris.client.connection.discovery import running_cluster
    from rigging.errors import Conflict

    name_file(context, file)
    elsewhere = cluster_elsewhere(context)
    if elsewhere is not None:
        stop_elsewhere(context, elsewhere, force=force, yes=yes, dry_run=dry_run)
        return
    if dry_run:
        raise click.UsageError("--dry-run is for clusters with controller.gcp or .manual: no machine is deleted here")
    target = context.target()
    local = context.local_of(target)
    processes = context.processes(local.paths)
    if target.is_local:
        for suspended in processes.wake() if force else ():
            say(f"the local cluster's {suspended} was suspended; resuming it for a graceful stop")
        record = _running(local, force)
        if record is None:
            # At most remains of a cluster are left, or one of another release, with which nothing can be agreed.
            _stop_remains(processes, force)
            return
        target = running_cluster(record, target.name)
    left: list[str] = []
    with context.connect(target) as client:
        try:
            with told_if_slow("waiting for the controller to stop running tasks"):
                if target.is_local:
                    stopped = client.stop_cluster(stop_jobs=force)
                else:
                    stopped, left = client.operator.end_cluster(stop_jobs=force)
        except Conflict as error:
            raise Conflict(_refusal(client, str(error))) from None
        except Unavailable:
            if not (force and target.is_local):
                raise
            say("the local cluster's controller does not answer; killing it")
            processes.kill()
            stopped = []
        else:
            if target.is_local:
                _await_end(processes, force)
    jobs = f" and {len(stopped)} job{'s' if len(stopped) > 1 else ''}" if stopped else ""
    say(f"cluster {target.name}{jobs} stopped")
    if left:
        raise Unavailable(
            f"the deletion of {', '.join(left)} is not confirmed; serve the cluster again, and stop it once "
            "`iris cluster status` shows no slice"
        )


@cluster.command()
@click.argument("file", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before deleting machines.")
@pass_context
def restart(context: CliContext, file: str | None, yes: bool) -> None:
    """Replace all machines of a cluster with controller.gcp or .manual, with this release and file. Jobs stay, and
    running tasks are retried.

    `iris cluster controller restart` restarts the controller alone, and no task.
    """
    from iris.cli.cluster.elsewhere import name_file, needed_elsewhere, start_elsewhere, stop_elsewhere

    name_file(context, file)
    elsewhere = needed_elsewhere(context)
    stop_elsewhere(context, elsewhere, force=False, yes=yes, dry_run=False, for_good=False)
    start_elsewhere(context, elsewhere.file)


cluster.add_command(create_slice)
cluster.add_command(delete_slice)
cluster.add_command(list_command)
cluster.add_command(worker)
cluster.add_command(controller)
cluster.add_command(import_command)
cluster.add_command(validate)
cluster.add_command(token)
cluster.add_command(certs)
cluster.add_command(events)
cluster.add_command(audit)


def _await_end(processes: "ClusterProcesses", force: bool) -> None:
    try:
        processes.wait_stopped(on_wait=say)
    except Unavailable:
        if not force:
            raise
        processes.kill()


def _running(local: "LocalCluster", force: bool) -> "ClusterRecord | None":
    """Return the running local cluster. Without `force`, raise Conflict if it runs another release."""
    from rigging.errors import Conflict

    try:
        return local.find()
    except Conflict:
        if not force:
            raise
        return None


def _stop_remains(processes: "ClusterProcesses", force: bool) -> None:
    alive = [f"{what} (process {pid})" for what, pid in processes.holders().items()]
    if not alive:
        if force:
            processes.kill()  # tasks may have outlived all of them
        say("no local cluster runs")
    elif force:
        processes.kill()
        say(f"ended {' and '.join(alive)}")
    else:
        raise Unavailable(
            f"{' and '.join(alive)} of the local cluster runs but does not answer; `iris cluster stop --force` ends it"
        )


def _refusal(client: "IrisClient", reason: str) -> str:
    from iris.cluster.types import JobState

    live = client.list_jobs(states=[JobState.PENDING, JobState.BUILDING, JobState.RUNNING])
    if not live:
        return reason
    names = ", ".join(job.job_id for job in live[:_SHOWN_JOBS])
    more = f" and {len(live) - _SHOWN_JOBS} more" if len(live) > _SHOWN_JOBS else ""
    remedy = "stop them with `iris job stop`, or all with `iris cluster stop --force`"
    return f"the cluster has live jobs: {names}{more}; {remedy}"
