"""Starts, stops and restarts clusters whose controller has a machine of its own."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext
from iris.cli.output import listed, output, say
from rigging.cli.asking import confirmed
from rigging.errors import Conflict, MarinError, NotFound, Unavailable

if TYPE_CHECKING:
    from iris.lifecycle.access import Reached
    from iris.lifecycle.cluster import CloudCluster
    from iris.lifecycle.machines import Found, Machine, Machines
    from iris.lifecycle.start import Waiting

_COLUMNS: Final = ("name", "kind", "zone", "group", "type", "state")


def cluster_elsewhere(context: CliContext, file: Path | None = None) -> "CloudCluster | None":
    """Return the cluster of the chosen file if its controller has a machine of its own; None otherwise.

    Args:
        context: The global options.
        file: The cluster file; None for that of the options, or the one with which the named cluster was started.
    """
    from iris.lifecycle.cluster import cloud_cluster
    from iris.local.saved_clusters import saved_cluster
    from iris.local.start import LocalCluster
    from iris.local.state import named_paths

    if context.controller_url:
        return None
    if file is None:
        try:
            file = context.config_path()
        except NotFound:
            saved = saved_cluster(os.environ, context.cluster or "") if context.cluster else None
            if saved is None:
                context.target()  # NotFound, unless it is a local run
                return None
            file = Path(saved.file)
    found = cloud_cluster(file) if file is not None else None
    if found is not None and saved_cluster(os.environ, found.name) is None:
        local = LocalCluster(named_paths(os.environ, found.name))
        return None if local.find() is not None else found
    return found


def needed_elsewhere(context: CliContext) -> "CloudCluster":
    """Return the chosen cluster. Raise UsageError if its controller has no machine of its own."""
    found = cluster_elsewhere(context)
    if found is None:
        raise click.UsageError(
            "name a cluster with controller.gcp or .manual in its file: `iris --cluster=NAME ...` or `--config FILE`"
        )
    return found


def name_file(context: CliContext, file: str | None, option: Path | None = None) -> None:
    """Choose a cluster by a command's FILE argument. Raise UsageError if an option names one, too."""
    if file is None:
        return
    if option or context.config or context.cluster or context.controller_url:
        raise click.UsageError(f"{file} is given besides --config, --cluster or --controller-url; give only one")
    context.config = file


def start_elsewhere(context: CliContext, file: Path) -> bool:
    """Start a cluster, or finish a start that was interrupted, and save it for later commands. Return False if the
    file's controller has no machine of its own.
    """
    from iris.lifecycle.cluster import cloud_cluster
    from iris.local.saved_clusters import starting
    from iris.local.start import LocalCluster
    from iris.local.state import named_paths

    cluster = cloud_cluster(file)
    if cluster is None:
        return False
    if LocalCluster(named_paths(os.environ, cluster.name)).find() is not None:
        raise Conflict(
            f"a local run of {file} is named {cluster.name}, too; end it first with `iris --cluster={cluster.name} "
            "cluster stop`"
        )
    with starting(os.environ, cluster.name):
        machines = cluster.machines()
        asyncio.run(_closing(machines, _start(context, cluster, machines)))
    return True


def restart_controller(context: CliContext, cluster: "CloudCluster") -> None:
    """Restart the controller with this release and file. Tasks continue."""
    machines = cluster.machines()
    asyncio.run(_closing(machines, _restart(context, cluster, machines)))


def stop_elsewhere(
    context: CliContext, cluster: "CloudCluster", *, force: bool, yes: bool, dry_run: bool, for_good: bool = True
) -> None:
    """List all machines of a cluster, ask, and delete them.

    Args:
        context: Asks.
        cluster: The cluster.
        force: Also stop live jobs.
        yes: Do not ask.
        dry_run: Only list.
        for_good: Whether jobs end; they stay for the next controller otherwise.
    """
    machines = cluster.machines()
    stop = _Stop(context, cluster, machines, force, for_good)
    asyncio.run(_closing(machines, stop.run(yes, dry_run)))


async def _closing(machines: "Machines", work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    finally:
        await machines.close()


async def _start(context: CliContext, cluster: "CloudCluster", machines: "Machines") -> None:
    from iris.autoscale.port import Phase
    from iris.lifecycle.publish import check_host, check_start
    from iris.lifecycle.start import start_controller
    from iris.local.saved_clusters import save_start

    reached, waiting = _waiting(context, cluster)
    before = (await machines.find()).controller
    runs = before is not None and before.phase in (Phase.CREATING, Phase.READY)
    await asyncio.to_thread(check_start, cluster, runs=runs)
    await asyncio.to_thread(check_host, cluster)
    if before is None or await waiting.trouble(before):
        script = await asyncio.to_thread(_published, cluster)
        save_start(os.environ, cluster.name, cluster.file)
        await start_controller(machines, script, waiting)
    _save(cluster, reached[-1], "is ready" if before is None else "runs")


async def _restart(context: CliContext, cluster: "CloudCluster", machines: "Machines") -> None:
    from iris.lifecycle.start import await_controller, restart_controller

    machine = (await machines.find()).controller
    if machine is None:
        raise NotFound(f"cluster {cluster.name} has no controller; `iris cluster start {cluster.file}` creates it")
    await restart_controller(machines, machine, await asyncio.to_thread(_published, cluster), say)
    reached, waiting = _waiting(context, cluster)
    await await_controller(machines, waiting)
    _save(cluster, reached[-1], "is ready again")


def _save(cluster: "CloudCluster", reached: "Reached", state: str) -> None:
    from iris.lifecycle.access import save

    save(cluster, reached)
    say(
        f"cluster {cluster.name} {state} at {reached.address} (iris {reached.version}); use it with "
        f"`iris --cluster={cluster.name} ...`"
    )


def _published(cluster: "CloudCluster") -> str:
    """Return the startup script of the controller, after what it needs was written into the remote state."""
    from iris.lifecycle.publish import publish

    say(f"writing this release and {cluster.file} to {cluster.state_url}")
    return publish(cluster)


def _sleep_of(context: CliContext) -> Callable[[float], Awaitable[object]]:
    return lambda seconds: asyncio.to_thread(context.sleep, seconds)


def _waiting(context: CliContext, cluster: "CloudCluster") -> "tuple[list[Reached], Waiting]":
    from iris.lifecycle.access import reach
    from iris.lifecycle.start import Waiting

    found: list[Reached] = []

    async def trouble(machine: "Machine") -> str:
        try:
            found.append(await asyncio.to_thread(reach, cluster, machine))
        except MarinError as error:
            return str(error)
        return ""

    return found, Waiting(trouble, say, sleep=_sleep_of(context))


def tunnel_to(cluster: "CloudCluster", url: str) -> list[str]:
    """Return the command that forwards the port of a link on the controller's machine to this one; empty if the
    cluster was not started or found from here.
    """
    from urllib.parse import urlsplit

    from iris.lifecycle.ssh import tunnel_command
    from iris.local.saved_clusters import saved_cluster

    saved, port = saved_cluster(os.environ, cluster.name), urlsplit(url).port
    if saved is None or not saved.address or port is None:
        return []
    return tunnel_command(cluster.config.platform.ssh, saved.address.rpartition(":")[0], port)


def show_machines(found: "Found", as_json: bool = False) -> None:
    """Print machines, and on stderr the places that could not be listed."""
    rows = [
        [each.name, each.kind, each.zone, "controller" if each.is_controller else each.group, each.type, each.state]
        for each in found.machines
    ]
    output(as_json).rows(_COLUMNS, rows, [asdict(each) for each in found.machines])
    for place in found.unlisted:
        say(f"not listed: {place}")
    if not (rows or as_json):
        say("no machine is listed" if found.unlisted else "the cluster has no machines")


@dataclass(frozen=True, slots=True)
class _Stop:
    """One `stop`; arguments as in `stop_elsewhere`."""

    context: CliContext
    cluster: "CloudCluster"
    machines: "Machines"
    force: bool
    for_good: bool

    async def run(self, yes: bool, dry_run: bool) -> None:
        from iris.lifecycle.publish import check_host, forget_start
        from iris.lifecycle.stop import delete_all
        from iris.local.saved_clusters import forget_cluster

        name = self.cluster.name
        found = await self.machines.find()
        show_machines(found)
        if dry_run:
            return
        await asyncio.to_thread(check_host, self.cluster)
        if found.machines:
            await self._prepare(found, yes)
        left = await delete_all(
            self.machines, found, lambda number: say(f"{number} left"), sleep=_sleep_of(self.context)
        )
        if left:
            why = [f"{machine}: {reason}" for machine, reason in left.machines.items()] + list(left.unlisted)
            raise Unavailable(f"cluster {name} is not stopped: {'; '.join(why)}. `iris cluster stop` tries again")
        if self.for_good:
            forget_cluster(os.environ, name)
            await asyncio.to_thread(forget_start, self.cluster)
        say(f"cluster {name} has no machines; its jobs and history stay in {self.cluster.state_url}")

    async def _prepare(self, found: "Found", yes: bool) -> None:
        """Ask, and let the controller end or save its state, if it answers."""
        from iris.lifecycle.access import reach

        controller = found.controller
        reached = None
        if controller is not None:
            try:
                reached = await asyncio.to_thread(reach, self.cluster, controller)
            except MarinError as error:
                say(f"the controller does not answer ({error}); running tasks end with their machines")
        if reached is not None and self.for_good and not self.force:
            await asyncio.to_thread(self._check_jobs, reached)
        confirmed(self.context, f"delete all machines of cluster {self.cluster.name}, {len(found.machines)}?", yes)
        if reached is not None:
            await asyncio.to_thread(self._take_leave, reached)

    def _check_jobs(self, reached: "Reached") -> None:
        from iris.cluster.types import JobState

        with self.context.connect(reached.target(self.cluster.name)) as client:
            live = client.list_jobs(states=[JobState.PENDING, JobState.BUILDING, JobState.RUNNING])
        if live:
            names = listed([job.job_id for job in live])
            raise Conflict(
                f"cluster {self.cluster.name} has live jobs: {names}; stop them, or add --force. Nothing was changed"
            )

    def _take_leave(self, reached: "Reached") -> None:
        """Let the controller write its state, or end: it creates no further slices then."""
        try:
            with self.context.connect(reached.target(self.cluster.name)) as client:
                if self.for_good:
                    client.stop_cluster(stop_jobs=self.force)
                else:
                    client.operator.checkpoint()
        except Unavailable as error:
            say(f"the controller: {error}")  # it may end before it answers
