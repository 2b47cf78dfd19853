"""`iris job run`: submit a command, show what it prints, end as it ends."""

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.job.argv import (
    ENV_OPTION,
    default_job_name,
    parse_gpu,
    parse_reservation,
    parse_tpu,
    rewrite_env,
    split_command,
)
from iris.cli.output import echo, say
from iris.cli.params import NAME, SECONDS, SIZE, NumberRange
from iris.domain.task_variables import is_own_variable
from rigging.errors import InvalidRequest, Unavailable
from rigging.forwarding import FORWARDED_ENV_VARS
from rigging.topology import get_tpu_topology

if TYPE_CHECKING:
    from iris.client import IrisClient, Job
    from iris.client.connection.discovery import ClusterTarget
    from iris.cluster.constraints import Constraint
    from iris.cluster.types import DeviceSpec

_ENV_HELP: Final = "Variable: -e KEY VALUE, -e KEY=VALUE, or -e KEY to take your own."


class RunCommand(click.Command):
    """Splits off the command at the first "--" itself, so that no typo can become part of it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else args
        if not any(word in ctx.help_option_names for word in before):
            options, command = split_command(args)
            ctx.meta["iris.command"] = command
            args = rewrite_env(options, os.environ)
        else:
            args = ["--help"]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `iris job run`, as typed."""

    cpu: float
    memory: str
    disk: str | None
    tpu: str | None
    gpu: str | None
    extras: tuple[str, ...]
    pip_packages: tuple[str, ...]
    env: tuple[str, ...]
    replicas: int | None
    max_retries: int
    timeout: float | None
    regions: tuple[str, ...]
    zone: str | None
    priority: str | None
    job_name: str | None
    description: str
    user: str | None
    preemptible: bool | None
    wait: bool
    terminate_on_exit: bool
    max_retries_preemption: int
    max_task_failures: int
    scheduling_timeout: float | None
    existing: str
    reserve: tuple[str, ...]
    exclusive: bool
    fence_after: float | None
    workspace: str | None
    no_workspace: bool
    enable_extra_resources: bool


@click.command(
    "run",
    cls=RunCommand,
    epilog="MARIN_* of your environment are passed on, and when set " + ", ".join(FORWARDED_ENV_VARS) + ".",
)
@click.option("--cpu", type=NumberRange(min=0, max=1e6), default=0.1, show_default=True, help="Cores of each task.")
@click.option("--memory", type=SIZE, default="1GB", show_default=True, help="Memory of each task, with a unit.")
@click.option("--disk", type=SIZE, help="Scratch space kept for each task; left out: what is free.")
@click.option("--tpu", metavar="TYPE[,TYPE...]", help="TPU slice, e.g. v5p-8; further types would do as well.")
@click.option("--gpu", metavar="[TYPEx]N", help="GPUs of each task, e.g. 2 or H100x8.")
@click.option("--extra", "extras", metavar="GROUP", multiple=True, help="Optional-dependency group to install.")
@click.option("--pip", "pip_packages", metavar="PACKAGE", multiple=True, help="Package to install.")
@click.option("-e", "--env", "env_shown", metavar="KEY [VALUE]", multiple=True, help=_ENV_HELP)
@click.option(ENV_OPTION, "env", multiple=True, hidden=True)
@click.option("--replicas", type=int, help="Number of tasks.  [default: the hosts of a TPU slice, as a gang; else 1]")
@click.option("--max-retries", type=int, default=0, show_default=True, help="New tries of a task that failed.")
@click.option(
    "--max-retries-preemption",
    type=int,
    default=1000,
    show_default=True,
    help="New tries of a task that lost its host.",
)
@click.option(
    "--max-task-failures", type=int, default=0, show_default=True, help="So many tasks may fail before the job does."
)
@click.option(
    "--scheduling-timeout", type=SECONDS, metavar="SECONDS", help="End the job when no task was placed for so long."
)
@click.option(
    "--existing",
    type=click.Choice(["fail", "adopt", "replace"]),
    default="fail",
    show_default=True,
    help="When a live job has that name: refuse, follow that one, or stop it and take its place.",
)
@click.option(
    "--reserve",
    is_flag=False,
    flag_value="",
    multiple=True,
    metavar="[[COUNT:]DEVICE]",
    help="Hold the accelerators without attaching them to the tasks: those of --tpu or --gpu, or these.",
)
@click.option("--exclusive", is_flag=True, help="Never two live attempts of a task, whatever becomes of hosts.")
@click.option(
    "--fence-after",
    type=SECONDS,
    metavar="SECONDS",
    help="With --exclusive: an attempt ends so long after its host lost contact (default: 600).",
)
@click.option(
    "--workspace", metavar="DIR", help="Folder whose files go along; your project or current folder otherwise."
)
@click.option("--no-workspace", is_flag=True, help="Send no files.")
@click.option("--enable-extra-resources", is_flag=True, hidden=True)  # older clusters asked for it beside accelerators
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Fail the job when it runs longer.")
@click.option("--region", "regions", metavar="REGION", multiple=True, help="Region to run in; several: any of them.")
@click.option("--zone", type=NAME, help="Zone to run in.")
@click.option("--priority", type=click.Choice(["production", "interactive", "batch"]), help="Priority band.")
@click.option("--job-name", type=NAME, metavar="NAME", help="Name of the job; made from the command otherwise.")
@click.option("--description", default="", metavar="TEXT", help="What it is for, in a line for people.")
@click.option("--user", type=NAME, help="Who the job belongs to: admins may say. [default: you]")
@click.option("--preemptible/--no-preemptible", default=None, help="Only on capacity that can (not) be taken away.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Follow the job, or print its id and go.")
@click.option(
    "--terminate-on-exit/--no-terminate-on-exit", default=True, help="Whether Ctrl-C stops it (default: it does)."
)
@pass_context
@click.pass_context
def run(ctx: click.Context, context: CliContext, /, env_shown: tuple[str, ...], **options: Any) -> int:  # noqa: ARG001
    """Run COMMAND as a job, with the files of this project or folder, and show what it prints.

    Ends with the command's exit code (128 + n for signal n). Ctrl-C stops the job.
    """
    return run_job(context, RunOptions(**options), ctx.meta["iris.command"])


def run_job(context: CliContext, options: RunOptions, command: Sequence[str]) -> int:
    """Submit and, unless told not to, follow; returns the exit code. Raises MarinError when it is refused."""
    from iris.cli.job.follow import Follower
    from iris.client import IrisClient

    name = options.job_name or default_job_name(command, time.localtime(), secrets.token_hex(2))
    resources = _resources(options)
    target = context.target()
    workspace = _workspace(options, inside=target.inside is not None)
    if target.is_local:
        _refuse_without_worker()
    with IrisClient.of(
        target,
        workspace,
        user=options.user,
        on_warning=say,
        on_notice=say,
        on_interrupted=say,
        inherit_workspace=not options.no_workspace,
    ) as client:
        follower = Follower(client, terminate_on_exit=options.terminate_on_exit)
        with follower.guard_submission(f"{client.full_name_prefix()}/{name}"):
            job = _submit(client, options, command, name, resources)
        say(f"job {job.job_id} on {describe(target, client)}")
        if not options.wait:
            echo(job.job_id)
            say(f"follow it with `iris job logs -f {job.job_id}`, stop it with `iris job stop {job.job_id}`")
            return 0
        return follower.follow(job.job_id, replicas=_gang(options)[0])


def _refuse_without_worker() -> None:
    """Raise Unavailable while the local cluster runs and its worker never could: the job would only wait."""
    from iris.local.start import LocalCluster

    record = LocalCluster().find()
    if record is not None and record.worker_trouble and not record.ready:
        raise Unavailable(f"the local cluster's worker does not start, and is tried again: {record.worker_trouble}")


def _submit(client: "IrisClient", options: RunOptions, command: Sequence[str], name: str, resources: Any) -> "Job":
    from iris.cluster.constraints import WellKnownAttribute
    from iris.cluster.types import CoschedulingConfig, Entrypoint, EnvironmentSpec

    replicas, is_gang = _gang(options)
    given = dict(assignment.split("=", 1) for assignment in options.env)
    for variable in filter(is_own_variable, given):
        raise click.BadParameter(
            f"{variable} is what iris itself tells each task; give another name", param_hint="'-e'"
        )
    forwarded = {name: os.environ[name] for name in FORWARDED_ENV_VARS if name in os.environ}
    return client.submit(
        Entrypoint.from_command(*command),
        name,
        resources,
        EnvironmentSpec(options.pip_packages, {**forwarded, **given}, options.extras),
        constraints=_constraints(options),
        coscheduling=CoschedulingConfig(WellKnownAttribute.TPU_NAME) if is_gang else None,
        replicas=replicas,
        max_retries_failure=options.max_retries,
        timeout=options.timeout,
        priority_band=options.priority,
        max_retries_preemption=options.max_retries_preemption,
        max_task_failures=options.max_task_failures,
        scheduling_timeout=options.scheduling_timeout,
        existing=options.existing,
        reserve="" in options.reserve,
        reservation=[entry for word in options.reserve if word for entry in parse_reservation(word)],
        exclusive=options.exclusive,
        fence_after=options.fence_after,
        description=options.description,
    )


def _gang(options: RunOptions) -> tuple[int, bool]:
    """The number of tasks, and whether they are a gang: unless said otherwise, the hosts of a whole TPU slice are."""
    if options.replicas is not None or options.tpu is None:
        return 1 if options.replicas is None else options.replicas, False
    hosts = get_tpu_topology(parse_tpu(options.tpu).variant).vm_count
    return hosts, hosts > 1


def _resources(options: RunOptions) -> Any:
    from iris.cluster.types import ResourceSpec

    if options.tpu is not None and options.gpu is not None:
        raise click.UsageError("--tpu and --gpu: a task has one kind of accelerator; give one of them")
    device: DeviceSpec | None = None
    if options.tpu is not None:
        device = parse_tpu(options.tpu)
    elif options.gpu is not None:
        device = parse_gpu(options.gpu)
    return ResourceSpec(options.cpu, options.memory, options.disk, device)


def _constraints(options: RunOptions) -> list["Constraint"]:
    from iris.cluster.constraints import preemptible_constraint, region_constraint, zone_constraint

    constraints = []
    if options.regions:
        constraints.append(region_constraint(options.regions))
    if options.zone:
        constraints.append(zone_constraint(options.zone))
    if options.preemptible is not None:
        constraints.append(preemptible_constraint(options.preemptible))
    return constraints


def _workspace(options: RunOptions, *, inside: bool) -> Path | None:
    """The folder that goes along. Raises UsageError, or InvalidRequest for one that never does."""
    from iris.client.submission.workspace_choice import find_workspace

    if options.workspace is not None and options.no_workspace:
        raise click.UsageError("--workspace and --no-workspace: give one of them")
    if options.workspace is not None:
        if not options.workspace:
            raise click.BadParameter("it is empty: name a folder, or give --no-workspace", param_hint="'--workspace'")
        return Path(options.workspace)
    # A job's own jobs get that job's files.
    return None if options.no_workspace or inside else find_workspace(_here())


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InvalidRequest(
            "the current directory has been removed: change to another, or give --workspace DIR or --no-workspace"
        ) from None


def describe(target: "ClusterTarget", client: "IrisClient") -> str:
    """The cluster, for people."""
    if target.is_local:
        return f"your local cluster at {client.address}"
    return f"cluster {target.name}" if target.name == client.address else f"cluster {target.name} at {client.address}"
