"""`iris cluster controller serve|status|checkpoint|restore`."""

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris.cli.context import CliContext, pass_context
from iris.cli.output import duration, echo, moment, output, say
from iris.cli.params import DIRECTORY
from iris.cli.service import install, option_words, service_options
from rigging.cli.groups import SuggestingGroup

if TYPE_CHECKING:
    from iris.client import ClusterStatus

_STATE_DIR_HELP: Final = "Directory of the controller's state.  [default: controller.state_dir of the config]"
_REMOTE_HELP: Final = "Remote copy of the state: gs://..., s3://..., a path; '' for none."
_PATIENCE_HELP: Final = (
    "Delay before tasks restart elsewhere when half the workers or more fall silent together.  [default: 300]"
)
_AT_HELP: Final = "The state as of then: 2026-11-21T07:30:00 (local time, or with an offset), or Unix seconds."


@click.group(cls=SuggestingGroup)
def controller() -> None:
    """Run a controller, and manage its state."""


@controller.command()
@click.option("--state-dir", type=DIRECTORY, metavar="DIR", help=_STATE_DIR_HELP)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port; 0 for any free one.  [default: that of the config, or any]"
)
@click.option("--host", metavar="HOST", help="Address of this machine to listen on.  [default: loopback]")
@click.option("--insecure", is_flag=True, help="Serve beyond loopback without TLS, on a network that you trust.")
@click.option("--config", "config", metavar="FILE", help="Same as the global --config.")
@click.option("--remote-state-dir", metavar="URL", help=_REMOTE_HELP)
@click.option(
    "--durability", type=click.Choice(["local", "remote"]), help="Where a submit is stored before it is acknowledged."
)
@click.option("--partition-patience", type=click.IntRange(0, 86_400), metavar="SECONDS", help=_PATIENCE_HELP)
@pass_context
def serve(
    context: CliContext,
    state_dir: Path | None,
    port: int | None,
    host: str | None,
    insecure: bool,
    config: str | None,
    remote_state_dir: str | None,
    durability: str | None,
    partition_patience: int | None,
) -> None:
    """Run a controller in this terminal until Ctrl-C. It listens on loopback by default.

    Every call needs a token. Beyond loopback, connections are encrypted (TLS), with certificates in the state directory
    that are created on first use. --insecure turns encryption off and prints a warning each time.

    With --config FILE or --cluster NAME it reads its settings from there.
    """
    from iris.rpc.daemon import tune_process

    tune_process()
    from iris.local.standalone import serve_standalone

    def tell(address: str, token_file: Path) -> None:
        echo(address)
        say(f"the controller serves on {address}; your token is in {token_file}")

    context.config = config or context.config
    serve_standalone(
        context.config_path(),
        state_dir=state_dir,
        port=port,
        remote_state_dir=remote_state_dir,
        durability=durability,
        host=host,
        insecure=insecure or context.insecure,
        partition_patience_s=partition_patience,
        on_ready=tell,
    )


@controller.command("install-service")
@click.option("--state-dir", type=DIRECTORY, metavar="DIR", help="As in `serve`, like all further options.")
@click.option("--host", metavar="HOST")
@click.option("--port", type=click.IntRange(1, 65_535))
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--remote-state-dir", metavar="URL")
@click.option("--durability", type=click.Choice(["local", "remote"]))
@click.option("--insecure", is_flag=True)
@service_options("iris-controller")
@pass_context
def install_service(context: CliContext, /, as_user: bool, only_print: bool, service_name: str, **given: Any) -> None:
    """Write a systemd unit that runs `iris cluster controller serve` with these options. It contains no secrets."""
    given["config"] = given["config"] or context.config_path()
    given["insecure"] = given["insecure"] or context.insecure
    if given["port"] is None and given["config"] is None:
        raise click.UsageError("give --port (or --config with one): workers must find the controller after a restart")
    if given["state_dir"] is None and given["config"] is None:
        if as_user:
            raise click.UsageError("give --state-dir, or --config with one")
        given["state_dir"] = Path("/var/lib/iris")
    install(
        "iris controller",
        ["cluster", "controller", "serve", *option_words(given)],
        service_name=service_name,
        as_user=as_user,
        only_print=only_print,
        leaves_tasks=False,
    )


@controller.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def status(context: CliContext, as_json: bool) -> None:
    """Show the controller: its start time, and the location of its state."""
    with context.client() as client:
        found = client.cluster_status()
        address = client.address
    now = context.now_ms()
    lines = [
        f"controller: {address} (iris {found.version}, process {found.pid}, up "
        f"{duration((now - found.started_at_ms) / 1000)})",
        f"state:      {found.state_dir}",
        *storage_lines(found, now),
        *([] if found.remote_state_dir else ["remote:     none; the state is on this machine alone"]),
    ]
    output(as_json).record(lines, {"address": address, **found.to_json()})


def storage_lines(found: "ClusterStatus", now_ms: int) -> list[str]:
    """Return lines about the disk and, if there is one, the remote copy of the state and its lag."""
    warning = [f"disk:       {found.disk_warning}"] if found.disk_warning else []
    if not found.remote_state_dir:
        return warning
    behind = f"{found.unreplicated_commits} commits behind" if found.unreplicated_commits else "up to date"
    snapshot = (
        f"last snapshot {moment(found.last_snapshot_at_ms, now_ms)}" if found.last_snapshot_at_ms else "no snapshot yet"
    )
    return [
        *warning,
        f"remote:     {found.remote_state_dir} (durability {found.durability}, {behind}, {snapshot}, "
        f"generation {found.generation})",
    ]


@controller.command()
@pass_context
def restart(context: CliContext) -> None:
    """Restart the controller of controller.gcp or .manual with this release and file. Tasks continue."""
    from iris.cli.cluster.elsewhere import needed_elsewhere, restart_controller

    restart_controller(context, needed_elsewhere(context))


@controller.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_context
def checkpoint(context: CliContext, as_json: bool) -> None:
    """Write a snapshot of the state to the remote state directory now. Scheduling continues."""
    with context.client() as client:
        done = client.operator.checkpoint()
    record = {
        "remote_state_dir": done.remote_state_dir,
        "generation": done.generation,
        "sequence": done.sequence,
        "at_ms": done.at_ms,
    }
    at = datetime.fromtimestamp(done.at_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    output(as_json).record([f"commit {done.sequence} of {at} is in {done.remote_state_dir}"], record)


@controller.command()
@click.option("--at", "at", metavar="TIME", help=_AT_HELP + "  [default: the latest]")
@click.option("--state-dir", type=DIRECTORY, metavar="DIR", help=_STATE_DIR_HELP)
@click.option("--remote-state-dir", metavar="URL", help=_REMOTE_HELP)
@pass_context
def restore(context: CliContext, at: str | None, state_dir: Path | None, remote_state_dir: str | None) -> None:
    """Restore the state in --state-dir from the remote state directory, as of a point in time. No controller may be
    running on either. An existing database is moved aside, not removed. Later controllers ignore all changes after
    TIME.
    """
    from iris.local.standalone import restore_state

    at_ms = None if at is None else parse_time(at)
    if at_ms is not None and at_ms > context.now_ms():
        raise click.UsageError(f"--at {at}: the time is in the future")
    done = restore_state(context.config_path(), state_dir=state_dir, remote_state_dir=remote_state_dir, at_ms=at_ms)
    if done.moved_to is not None:
        say(f"the previous database is in {done.moved_to}")
    say(f"{done.state_dir} has the state of {done.remote_state_dir} as of commit {done.sequence}")


def parse_time(text: str) -> int:
    """Return the Unix ms of ISO 8601 (local time without an offset) or Unix seconds. Raise UsageError."""
    try:
        return round(float(text) * 1000)
    except (ValueError, OverflowError):
        pass
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        now = time.strftime("%Y-%m-%dT%H:%M:%S")
        raise click.UsageError(f"--at {text!r}: write e.g. {now}, {now}+00:00, or Unix seconds") from None
