"""`iris cluster vm list|status|logs`: the machines of a cluster, also while its controller does not answer."""

import asyncio
import os
import shlex
from collections.abc import Callable, Coroutine
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.cluster.elsewhere import needed_elsewhere, show_machines
from iris.cli.context import CliContext, pass_context
from iris.cli.output import echo, echo_data, output
from rigging.cli.groups import SuggestingGroup
from rigging.errors import InvalidRequest, MarinError, NotFound

if TYPE_CHECKING:
    from iris.lifecycle.machines import Machine, Machines

_STARTING: Final = "starting"
"""The last phase that the startup script tells."""
_LOOK_S: Final = 2.0
_MANUAL: Final = "/var/lib/iris-host 2>/dev/null"
_JOURNAL: Final = ("sudo", "journalctl", "--no-pager", "-u", "iris-worker", "-u", "google-startup-scripts")


@click.group(cls=SuggestingGroup)
def vm() -> None:
    """Inspect the cluster's machines, also while its controller does not answer."""


@vm.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def list_command(context: CliContext, as_json: bool) -> None:
    """List all machines that bear the cluster's label."""

    async def show(machines: "Machines") -> None:
        show_machines(await machines.find(), as_json)

    _run(context, show)


@vm.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def status(context: CliContext, name: str, as_json: bool) -> None:
    """Show a slice, or with NAME `controller` the controller's machine: its state, addresses and phase of start."""

    from iris.lifecycle.start import PHASE

    async def show(machines: "Machines") -> None:
        machine = await _find(machines, name)
        hosts = await machines.phases(machine)
        if machine.is_controller and hosts and hosts[0].get(PHASE) == _STARTING and await _answers(context, machine):
            hosts = ({**hosts[0], PHASE: "serving"},)
        lines = [f"{machine}: {machine.kind} in {machine.zone}, {machine.type}, {machine.state}"]
        lines += [machine.words] if machine.words else []
        for number, address in enumerate(machine.addresses):
            outside = f" ({machine.external[number]})" if number < len(machine.external) else ""
            told = hosts[number] if number < len(hosts) else {}
            lines.append(f"host {number}: {address}{outside}  {told.get(PHASE, 'nothing told yet')}")
        output(as_json).record(lines, {**asdict(machine), "hosts": hosts})

    _run(context, show)


@vm.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option("-n", "--last", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Newest N lines.")
@click.option("--worker", type=click.IntRange(0), help="Host of a slice.  [default: 0]")
@click.option("--ssh", "by_ssh", is_flag=True, help="Read the journal of the worker by ssh, not the serial port.")
@click.option("--print", "only_print", is_flag=True, help="Print the ssh command without running it.")
@pass_context
def logs(
    context: CliContext, name: str, follow: bool, last: int, worker: int | None, by_ssh: bool, only_print: bool
) -> None:
    """Print the output of a machine's serial port. TPU hosts have none: theirs is read by ssh, like with --ssh."""
    commands: list[list[str]] = []
    config = needed_elsewhere(context).config

    async def show(machines: "Machines") -> None:
        machine = await _find(machines, name)
        number = worker or 0
        if number >= max(len(machine.addresses), 1):
            raise InvalidRequest(f"--worker {number}: {machine} has hosts 0 to {len(machine.addresses) - 1}")
        if machine.has_console and not (by_ssh or only_print):
            await _follow(machines, machine, last, follow)
            return
        from iris.domain.scale_groups import ManualTemplate
        from iris.lifecycle.ssh import ssh_command

        template = next((group.template for group in config.scale_groups if group.name == machine.group), None)
        settings = config.platform.ssh
        if isinstance(template, ManualTemplate):
            own = template.ssh_user or settings.user, template.ssh_key_file or settings.key_file
            settings = replace(settings, user=own[0], key_file=own[1])
        host = next(iter((*machine.external[number:], *machine.addresses[number:])), "")
        if not host:
            raise NotFound(f"{machine} has no address yet: it is {machine.state}")
        log = [f"cd {_MANUAL} || cd .iris-host; tail worker.log"] if machine.kind == "host" else list(_JOURNAL)
        commands.append(ssh_command(settings, host, [*log, "-n", str(last), *(["-f"] if follow else [])]))

    _run(context, show)
    for command in commands:
        if only_print:
            echo(shlex.join(command))
        else:
            context.execute(["/usr/bin/env", *command], os.environ)


async def _answers(context: CliContext, machine: "Machine") -> bool:
    from iris.lifecycle.access import reach

    try:
        await asyncio.to_thread(reach, needed_elsewhere(context), machine)
    except MarinError:
        return False
    return True


async def _follow(machines: "Machines", machine: "Machine", last: int, follow: bool) -> None:
    text, end = await machines.console(machine)
    echo_data("".join(text.splitlines(keepends=True)[-last:]))
    while follow:
        await asyncio.sleep(_LOOK_S)
        text, end = await machines.console(machine, end)
        echo_data(text)


async def _find(machines: "Machines", name: str) -> "Machine":
    import difflib

    found = (await machines.find()).machines
    for machine in found:
        if name == machine.name or (name == "controller" and machine.is_controller):
            return machine
    near = difflib.get_close_matches(name, [machine.name for machine in found], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`iris cluster vm list` shows what there is"
    raise NotFound(f"the cluster has no machine {name!r}; {hint}")


def _run(context: CliContext, work: "Callable[[Machines], Coroutine[Any, Any, None]]") -> None:
    machines = needed_elsewhere(context).machines()

    async def closing() -> None:
        try:
            await work(machines)
        finally:
            await machines.close()

    asyncio.run(closing())
