"""`iris worker start|stop|install-service|revoke`."""

from pathlib import Path
from typing import Any

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import say
from iris.cli.params import DIRECTORY, NAME, SIZE, WORKER, NumberRange
from iris.cli.service import install, option_words, service_options
from rigging.cli.groups import SuggestingGroup


@click.group(cls=SuggestingGroup)
def worker() -> None:
    """Run workers, and revoke their credentials. See also `iris cluster worker`."""


@worker.command()
@click.option("--controller", required=True, type=NAME, metavar="HOST:PORT", help="The cluster's controller.")
@click.option("--join-token-file", type=click.Path(path_type=Path), metavar="FILE", help="Required at the first start.")
@click.option("--name", type=NAME, help="Its name in the cluster.  [default: that of the last start, or the host's]")
@click.option("--attributes", multiple=True, metavar="KEY=VALUE", help="For constraints of jobs; may be repeated.")
@click.option(
    "--slice",
    "slice_name",
    type=NAME,
    metavar="NAME",
    help="The host's slice, for gangs; like --attributes slice=NAME.",
)
@click.option(
    "--slice-index", type=click.IntRange(0, 9999), metavar="N", help="Index of the host in its slice, from 0."
)
@click.option("--tpu", metavar="TYPE", help="Type of the host's TPU slice, e.g. v5p-8.")
@click.option("--gpu", metavar="TYPE:N", help="GPUs of the host, e.g. H100:8.")
@click.option("--cpu", type=NumberRange(min=0.001, max=1e6), metavar="CORES", help="Cores to offer.  [default: all]")
@click.option("--memory", type=SIZE, help="Memory to offer, e.g. 16GB.  [default: all]")
@click.option("--disk", type=SIZE, help="Disk to offer.  [default: what is free]")
@click.option("--port-range", metavar="A-B", help="Ports for tasks.  [default: any free ones]")
@click.option(
    "--limits",
    type=click.Choice(["auto", "soft", "off"]),
    default="auto",
    show_default=True,
    help="Enforce tasks' memory and disk limits: with control groups if available, softly, or not at all.",
)
@click.option(
    "--max-processes", type=NumberRange(min=16, max=1e7), metavar="N", help="Processes and threads of a task."
)
@click.option(
    "--task-users",
    metavar="RANGE",
    help="Run each user's tasks under a separate uid of FIRST-LAST, so that they cannot read files of the worker or "
    "others'; needs root. off: as the worker's user.  [default: off]",
)
@click.option(
    "--containers",
    metavar="COMMAND",
    help='Run tasks with an image by podman or docker, e.g. "podman --runtime runc"; off: refuse them.  [default: '
    "podman or docker if it is there]",
)
@click.option(
    "--work-dir", type=DIRECTORY, metavar="DIR", help="Directory of its files.  [default: ~/.local/state/iris/worker]"
)
@click.option(
    "--platform",
    type=click.Choice(["none", "gce"]),
    default="none",
    help="gce: a machine at Google, which knows its name, slice, TPU and zone, and hears of its end beforehand.",
)
@click.option("--insecure", is_flag=True, help="Without TLS, on a network that you trust.")
@click.option("--dev", type=DIRECTORY, default="/dev", envvar="IRIS_DEVICE_DIR", hidden=True)
@pass_context
def start(
    context: CliContext,
    controller: str,
    join_token_file: Path | None,
    name: str | None,
    attributes: tuple[str, ...],
    slice_name: str | None,
    slice_index: int | None,
    tpu: str | None,
    gpu: str | None,
    cpu: float | None,
    memory: str | None,
    disk: str | None,
    port_range: str | None,
    limits: str,
    max_processes: float | None,
    task_users: str | None,
    containers: str | None,
    work_dir: Path | None,
    platform: str,
    insecure: bool,
    dev: Path,
) -> int:
    """Run a worker in this terminal until SIGTERM or Ctrl-C, which first end its tasks.

    At its first start the worker joins with a token from `iris cluster token create`, and stores its own credential in
    its work directory. If the worker is killed (SIGKILL), its tasks keep running, and its next start adopts them.
    """
    import logging
    import os

    from iris.rpc.controller_address import parse_address
    from iris.rpc.daemon import tune_process
    from rigging.log_setup import configure_logging
    from rigging.text.quantities import parse_size

    tune_process()
    from iris.local.standalone_worker import (
        WorkerOptions,
        default_work_dir,
        parse_attributes,
        parse_port_range,
        start_worker,
    )

    options = WorkerOptions(
        controller=parse_address(controller),
        work_dir=(work_dir or default_work_dir(os.environ)).absolute(),
        join_token_file=join_token_file,
        name=name,
        attributes=parse_attributes(attributes),
        slice_name=slice_name,
        slice_index=slice_index,
        tpu=tpu,
        gpu=gpu,
        cpu_millis=None if cpu is None else round(cpu * 1000),
        memory_bytes=None if memory is None else parse_size(memory),
        disk_bytes=None if disk is None else parse_size(disk),
        port_range=None if port_range is None else parse_port_range(port_range),
        limits=limits,
        max_processes=int(max_processes or 0),
        insecure=insecure or context.insecure,
        task_users=task_users or "off",
        containers=containers or "auto",
        platform=platform,
        dev=dev,
    )
    configure_logging(logging.INFO)
    return start_worker(options)


@worker.command()
@click.option("--work-dir", type=DIRECTORY, metavar="DIR", help="As in `worker start`.")
@click.option("--remove", is_flag=True, help="Remove the directory, too: its credential, caches and logs.")
def stop(work_dir: Path | None, remove: bool) -> None:
    """Stop the worker of this host and its tasks, which are retried elsewhere. To let tasks finish, drain it first.

    A service must be stopped with systemctl, which would otherwise start it again.
    """
    import os

    from iris.local.standalone_worker import default_work_dir
    from iris.local.stop import stop_worker_in

    place = (work_dir or default_work_dir(os.environ)).absolute()
    was_running = stop_worker_in(place, remove=remove)
    say(f"the worker in {place} " + ("has stopped" if was_running else "was not running"))


@worker.command("install-service")
@click.option("--controller", required=True, type=NAME, metavar="HOST:PORT", help="The cluster's controller.")
@click.option("--join-token-file", type=click.Path(path_type=Path), metavar="FILE", help="Required at the first start.")
@click.option("--name", type=NAME, help="As in `worker start`, like all further options.")
@click.option("--attributes", multiple=True, metavar="KEY=VALUE")
@click.option("--slice", "slice_name", type=NAME, metavar="NAME")
@click.option("--slice-index", type=click.IntRange(0, 9999), metavar="N")
@click.option("--tpu", metavar="TYPE")
@click.option("--gpu", metavar="TYPE:N")
@click.option("--cpu", type=NumberRange(min=0.001, max=1e6), metavar="CORES")
@click.option("--memory", type=SIZE)
@click.option("--disk", type=SIZE)
@click.option("--port-range", metavar="A-B")
@click.option("--limits", type=click.Choice(["auto", "soft", "off"]))
@click.option("--max-processes", type=click.IntRange(16, 10**7), metavar="N")
@click.option(
    "--task-users",
    metavar="RANGE",
    help="[default: 2000000000-2000000999 for a new host of a cluster beyond loopback, off for others and with --user]",
)
@click.option("--containers", metavar="COMMAND")
@click.option("--work-dir", type=DIRECTORY, metavar="DIR", help="[default: /var/lib/iris-worker; with --user your own]")
@click.option("--platform", type=click.Choice(["none", "gce"]))
@click.option("--insecure", is_flag=True)
@service_options("iris-worker")
@pass_context
def install_service(context: CliContext, /, as_user: bool, only_print: bool, service_name: str, **given: Any) -> None:
    """Write a systemd unit that runs `iris worker start` with these options. It contains paths but no secrets."""
    from iris.local.declared_devices import declared_device
    from iris.local.services import task_users_of
    from iris.rpc.controller_address import parse_address

    parse_address(given["controller"])
    declared_device(given["tpu"], given["gpu"])
    if given["work_dir"] is None and not as_user:
        given["work_dir"] = Path("/var/lib/iris-worker")
    given["task_users"] = task_users_of(given["task_users"], given["controller"], given["work_dir"], as_user=as_user)
    given["insecure"] = given["insecure"] or context.insecure
    install(
        "iris worker",
        ["worker", "start", *option_words(given)],
        service_name=service_name,
        as_user=as_user,
        only_print=only_print,
        leaves_tasks=True,
        limits_tasks=given["limits"] in (None, "auto"),
    )


@worker.command()
@click.argument("name", type=WORKER, metavar="WORKER")
@click.option("--reason", default="", help="Reason, for the worker and the controller's log.")
@pass_context
def revoke(context: CliContext, name: str, reason: str) -> None:
    """Revoke WORKER's credential. The name becomes free for another host.

    The worker's session ends immediately, and its tasks are stopped and retried elsewhere. To let tasks finish first,
    use `iris cluster worker drain`.
    """
    with context.client() as client:
        was_connected = client.operator.revoke_worker(name, reason)
    say(f"worker {name} is revoked; " + ("its session has ended" if was_connected else "it was not connected"))
