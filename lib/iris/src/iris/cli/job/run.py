"""`iris job run`: submits a command, shows its output, and exits with its code."""

import os
import secrets
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.job.argv import (
    ENV_OPTION,
    default_job_name,
    job_variables,
    rewrite_env,
    split_command,
    submit_command,
)
from iris.cli.job.request import RunOptions, gang_of, resources_of, submit_job
from iris.cli.output import echo, say
from iris.cli.params import CONDITION, COUNT, JOB, LATER, MEMORY, NAME, SECONDS, SIZE, SPAN, WORKER, NumberRange
from rigging.errors import InvalidRequest, Unavailable
from rigging.project import FORWARDED_ENV_VARS

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.connection.discovery import ClusterTarget
    from iris.local.start import LocalCluster

_CLUSTER_OPTIONS: Final = frozenset({"cluster", "config", "controller_url", "token_file"})

_ENV_HELP: Final = "Variable: -e KEY VALUE, -e KEY=VALUE, or -e KEY to take your own."
_ENV_FILE_HELP: Final = "File of NAME=value lines. Later files win, and -e wins over all."


class RunCommand(click.Command):
    """Splits off the command at the first "--", so that no mistyped option becomes part of the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # for shell completion
            return super().parse_args(ctx, args)
        before = args[: args.index("--")] if "--" in args else args
        if not any(word in ctx.help_option_names for word in before):
            options, command = split_command(args)
            ctx.meta["iris.command"] = command
            args = rewrite_env(options, os.environ)
            ctx.meta["iris.submit_command"] = submit_command(options, [*_program(ctx), "job", "run"])
        else:
            args = ["--help"]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


def _program(ctx: click.Context) -> list[str]:
    """Return the arguments that start `iris` with the global options of this command."""
    root = ctx.find_root()
    words = ["uv", "run", "iris"] if "UV_RUN_RECURSION_DEPTH" in os.environ else ["iris"]
    for option in root.command.params:
        if option.name in _CLUSTER_OPTIONS and root.params.get(option.name):
            words += [option.opts[0], str(root.params[option.name])]
    return [*words, "--insecure"] if root.params.get("insecure") else words


@click.command(
    "run",
    cls=RunCommand,
    epilog="MARIN_* variables are forwarded, and if set " + ", ".join(FORWARDED_ENV_VARS) + ".",
)
@click.option("--cpu", type=NumberRange(min=0, max=1e6), default=0.1, show_default=True, help="Cores of each task.")
@click.option("--memory", type=MEMORY, default="1GB", show_default=True, help="Memory of each task, with a unit.")
@click.option("--disk", type=SIZE, help="Scratch space reserved for each task.  [default: none; may use what is free]")
@click.option("--soft-limits/--no-soft-limits", default=None, help="Whether a task may use more than it requested.")
@click.option("--cpu-quota", is_flag=True, help="Never more CPU than --cpu, even on an idle host.")
@click.option("--tpu", metavar="TYPE[,TYPE...]", help="TPU slice, e.g. v5p-8; further types are alternatives.")
@click.option("--gpu", metavar="[TYPEx]N", help="GPUs of each task, e.g. 2 or H100x8.")
@click.option("--image", metavar="IMAGE", help="Container image of the tasks.")
@click.option("--extra", "extras", metavar="GROUP", multiple=True, help="Optional-dependency group to install.")
@click.option("--pip", "pip_packages", metavar="PACKAGE", multiple=True, help="Package to install.")
@click.option("-e", "--env", "env_shown", metavar="KEY [VALUE]", multiple=True, help=_ENV_HELP)
@click.option(ENV_OPTION, "env", multiple=True, hidden=True)
@click.option("--env-file", "env_files", metavar="FILE", multiple=True, help=_ENV_FILE_HELP)
@click.option("--replicas", type=int, help="Number of tasks.  [default: the hosts of a TPU slice, as a gang; else 1]")
@click.option(
    "--gang",
    is_flag=False,
    flag_value="",
    metavar="[ATTRIBUTE]",
    help="Start the --replicas together, on workers with the same value of ATTRIBUTE.  [default: tpu-name, pool for "
    "GPUs, else arch]",
)
@click.option("--max-retries", type=int, default=0, show_default=True, help="Retries of a failed task.")
@click.option(
    "--retry-delay",
    type=NumberRange(min=0, max=300),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Delay before the first retry after a failure; it doubles each time, up to 5 minutes.",
)
@click.option(
    "--retry-window",
    type=SPAN,
    metavar="T",
    help="Count only failures within this time (e.g. 1h) for --max-retries.",
)
@click.option("--health-cmd", type=NAME, metavar="CMD", help="Shell command that checks whether a task is healthy.")
@click.option("--health-interval", type=SPAN, default="30s", show_default=True, help="Time between two checks.")
@click.option("--health-timeout", type=SPAN, default="10s", show_default=True, help="Timeout of a check.")
@click.option(
    "--health-retries", type=COUNT, default=3, show_default=True, help="Consecutive failures that end the attempt."
)
@click.option(
    "--stall-timeout", type=SPAN, metavar="T", help="End an attempt without reported progress for this time, e.g. 20m."
)
@click.option("--grace", type=SPAN, metavar="T", help="Time to save a checkpoint when preempted.  [default: 30s]")
@click.option(
    "--max-retries-preemption",
    type=int,
    default=1000,
    show_default=True,
    help="Retries of a task that lost its host.",
)
@click.option("--max-task-failures", type=int, default=0, show_default=True, help="Failed tasks before the job fails.")
@click.option(
    "--scheduling-timeout", type=SECONDS, metavar="SECONDS", help="Fail the job if no task is placed within this time."
)
@click.option(
    "--existing",
    type=click.Choice(["fail", "adopt", "replace"]),
    default="fail",
    show_default=True,
    help="If a live job has that name: refuse, follow it, or replace it.",
)
@click.option(
    "--reserve",
    is_flag=False,
    flag_value="",
    multiple=True,
    metavar="[[COUNT:]DEVICE]",
    help="Hold accelerators without attaching them to the tasks: those of --tpu or --gpu, or the given ones.",
)
@click.option("--exclusive", is_flag=True, help="Never two live attempts of a task, even if a host is out of reach.")
@click.option(
    "--fence-after",
    type=SECONDS,
    metavar="SECONDS",
    help="With --exclusive: time after a host's last contact until its attempt ends (default: 600; at "
    "least four heartbeats: 20, unless the cluster is configured otherwise).",
)
@click.option("--workspace", metavar="DIR", help="Folder to send.  [default: your project or current folder]")
@click.option("--no-workspace", is_flag=True, help="Send no files.")
@click.option("--enable-extra-resources", is_flag=True, hidden=True)  # older clusters asked for it beside accelerators
@click.option(
    "--start-at", type=LATER, metavar="T", help="Start no task before: 2026-05-03T14:00, or in 90s, 10m, 2h, 3d."
)
@click.option("--max-running", type=COUNT, metavar="N", help="Tasks that run at the same time.  [default: all]")
@click.option(
    "--after",
    type=JOB,
    metavar="JOB[:ok|any]",
    multiple=True,
    help="Start after this job has succeeded, or with :any has ended.",
)
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Fail the job if it runs longer.")
@click.option("--region", "regions", metavar="REGION", multiple=True, help="Region to run in. Repeat to allow several.")
@click.option("--zone", type=NAME, help="Zone to run in.")
@click.option("--host", "hosts", type=WORKER, metavar="WORKER", multiple=True, help="Worker to use, or one of several.")
@click.option("--not-host", "not_hosts", type=WORKER, metavar="WORKER", multiple=True, help="Worker to avoid.")
@click.option(
    "--constraint",
    "conditions",
    type=CONDITION,
    metavar="CONDITION",
    multiple=True,
    help="Only workers with KEY=VALUE, KEY!=VALUE, 'KEY in A,B' or 'KEY>=NUMBER'.",
)
@click.option("--priority", type=click.Choice(["production", "interactive", "batch"]), help="Priority band.")
@click.option("--job-name", type=NAME, metavar="NAME", help="Name of the job.  [default: from the command]")
@click.option("--description", default="", metavar="TEXT", help="Purpose of the job, in one line.")
@click.option("--notify-url", type=NAME, metavar="URL", help="Post the job's end to this http(s) address.")
@click.option("--user", type=NAME, help="Owner of the job, for admins.  [default: you]")
@click.option("--preemptible/--no-preemptible", default=None, help="Only on (non-)preemptible capacity.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Follow the job, or print its id and exit.")
@click.option("-q", "--quiet", is_flag=True, help="Print no phases (pending, building).")
@click.option(
    "--terminate-on-exit/--no-terminate-on-exit", default=True, help="Whether Ctrl-C stops the job (default: yes)."
)
@pass_context
@click.pass_context
def run(ctx: click.Context, context: CliContext, /, env_shown: tuple[str, ...], **options: Any) -> int:  # noqa: ARG001
    """Run COMMAND as a job with the files of this project or folder, and show its output.

    Exits with the command's exit code (128 + n for signal n). Ctrl-C stops the job.
    """
    given = {name for name in ctx.params if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT}
    if wrong := unused_option(given):
        raise click.UsageError(wrong)
    words = ctx.meta["iris.submit_command"]
    return run_job(
        context, RunOptions(**options, memory_is_said="memory" in given, submit_command=words), ctx.meta["iris.command"]
    )


def run_job(context: CliContext, options: RunOptions, command: Sequence[str]) -> int:
    """Submit and, by default, follow a job. Return the exit code. Raise MarinError if it is refused.

    Args:
        context: The cluster and the output.
        options: The options of `iris job run`.
        command: The command's arguments.
    """
    from iris.cli.job.follow import Follower
    from iris.cli.status_line import StatusLine

    status = StatusLine(quiet=options.quiet)
    name = options.job_name or default_job_name(command, time.localtime(), secrets.token_hex(2))
    resources = resources_of(options)
    variables = job_variables(options.env, options.env_files)
    target = context.target()
    workspace = _workspace(options, inside=target.inside is not None)
    if target.is_local and target.paths is None:
        _refuse_without_worker(context.local_cluster())
    # An error that ends the command has a line of its own.
    with (
        status,
        context.connect(
            target,
            workspace,
            user=options.user,
            on_warning=status.say,
            on_notice=lambda text: None if options.quiet else status.say(text),
            on_interrupted=status.say,
            on_sending=lambda sent: status.show(f"sending: {sent / 1e6:.1f} MB"),
            inherit_workspace=not options.no_workspace,
        ) as client,
    ):
        follower = Follower(client, terminate_on_exit=options.terminate_on_exit, status=status)
        with follower.guard_submission(f"{client.full_name_prefix()}/{name}"):
            job = submit_job(client, options, variables, command, name, resources)
        status.say(f"job {job.job_id} on {describe(target, client)}")
        if not options.wait:
            echo(job.job_id)
            say(f"follow it with `iris job logs -f {job.job_id}`, stop it with `iris job stop {job.job_id}`")
            return 0
        return follower.follow(job.job_id, replicas=gang_of(options)[0])


def _refuse_without_worker(local: "LocalCluster") -> None:
    """Raise Unavailable if the local cluster is running but its worker cannot start, so that the job would wait
    forever.
    """
    record = local.find()
    if record is not None and record.worker_trouble and not record.ready:
        raise Unavailable(f"the local cluster's worker does not start; trying again: {record.worker_trouble}")


def _workspace(options: RunOptions, *, inside: bool) -> Path | None:
    """Return the workspace. Raise UsageError, or InvalidRequest for a folder that cannot be one."""
    from iris.client.submission.workspace_choice import find_workspace

    if options.workspace is not None and options.no_workspace:
        raise click.UsageError("--workspace and --no-workspace: give only one")
    if options.workspace is not None:
        if not options.workspace:
            raise click.BadParameter("it is empty; name a folder, or use --no-workspace", param_hint="'--workspace'")
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
    """Return a readable name of the cluster."""
    if target.paths is not None:
        return f"the local run of cluster {target.name} at {client.address}"
    if target.is_local:
        return f"your local cluster at {client.address}"
    return f"cluster {target.name}" if target.name == client.address else f"cluster {target.name} at {client.address}"


_NEEDS: Final = {
    "health_interval": ("health_cmd",),
    "health_timeout": ("health_cmd",),
    "health_retries": ("health_cmd",),
    "retry_window": ("max_retries",),
    "gang": ("replicas", "tpu"),
}
_GIVE: Final = {"health_cmd": "--health-cmd CMD", "max_retries": "--max-retries N", "replicas": "--replicas N"}


def unused_option(given: Collection[str]) -> str:
    """Return an error about an option without effect, because it needs another option.

    Args:
        given: The given options, by parameter name.
    """
    for name, needed in _NEEDS.items():
        if name in given and not any(option in given for option in needed):
            return f"--{name.replace('_', '-')} has no effect without {_GIVE[needed[0]]}: give both, or neither"
    return ""
