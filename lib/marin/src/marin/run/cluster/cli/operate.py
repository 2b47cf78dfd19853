"""`cluster list|up|down|update|status|monitor|exec|ssh|submit|add-worker`: wrappers of `ray` with checks and
confirmations.
"""

import shlex
import sys

import click

from marin.run import ray_run
from marin.run.cluster import ray_commands
from marin.run.cluster.cli.context import (
    clear_leftovers,
    cluster_option,
    confirm,
    dry_run_option,
    launched_files,
    load_cluster_file,
    say,
    show,
    shown_leftovers,
    yes_option,
)
from marin.run.cluster.cli.dashboard import take_token
from marin.run.cluster.execute import run, run_in_terminal, run_on_head
from marin.run.cluster.file.changes import check_taken_up
from marin.run.cluster.nodes.local import expect_workers_again
from marin.run.cluster_target import CLUSTER_DIRS, known_clusters, read_cluster_file
from rigging.errors import InvalidRequest


@click.command("list")
def list_clusters() -> None:
    """List the clusters that have files."""
    known = known_clusters()
    if not known:
        say(f"there are no cluster files; looked in {', '.join(CLUSTER_DIRS)}")
    for name, file in known.items():
        try:
            config = read_cluster_file(file)
        except InvalidRequest:
            continue  # another kind of file, such as Iris's
        head = config.get("head_node_type")
        types = config.get("available_node_types") or {}
        workers = ", ".join(
            f"{label} {found.get('min_workers', 0)}-{found.get('max_workers', config.get('max_workers'))}"
            for label, found in types.items()
            if label != head
        )
        provider = config["provider"]
        where = provider.get("availability_zone") or provider.get("head_ip") or provider.get("type")
        click.echo(f"{name:24} {config['cluster_name']:24} {where:16} {workers}")


@click.command("up")
@cluster_option
@yes_option
@dry_run_option
def up(cluster: str, yes: bool, dry_run: bool) -> None:
    """Start a cluster. If it already runs, Ray restarts and its jobs end (`update` keeps them running)."""
    found = load_cluster_file(cluster)
    found.check()
    command = ray_commands.up(found.shown)
    if dry_run:
        show(command)
        return
    found.check_names()
    confirm(f"Start {found.name}? If it runs, its jobs end.", yes=yes)
    launched_files().remember(found.file)  # before: one that fails may have launched VMs
    run(command)
    take_token(found)


@click.command("update")
@cluster_option
@yes_option
@dry_run_option
def update(cluster: str, yes: bool, dry_run: bool) -> None:
    """Apply a changed file (numbers of workers, new types) to a running cluster. Jobs continue."""
    found = load_cluster_file(cluster)
    found.check()
    command = ray_commands.up(found.shown, keep_running=True)
    if dry_run:
        show(command)
        return
    found.check_names()
    before = launched_files().find(found.file)
    if before is not None:
        check_taken_up(before, found.config, found.shown)
    else:
        say("it was not started from here: whether all changes can be applied is unknown")
        confirm("Apply the file?", yes=yes)
    run(command)
    launched_files().remember(found.file)


@click.command("down")
@cluster_option
@click.option("--workers-only", is_flag=True, help="Keep the head, which soon starts its minimum of workers again.")
@click.option("--preempted-only", is_flag=True, help="Remove only preempted slices; keep everything that runs.")
@yes_option
@dry_run_option
def down(cluster: str, workers_only: bool, preempted_only: bool, yes: bool, dry_run: bool) -> None:
    """Remove a cluster: all of its VMs with their data, and its jobs.

    On Google Cloud this includes nodes that Ray does not see: preempted slices, and VMs that are stopped or under
    repair.
    """
    found = load_cluster_file(cluster)
    if workers_only and preempted_only:
        raise InvalidRequest("--workers-only and --preempted-only exclude each other")
    if dry_run:
        if not preempted_only:
            show(ray_commands.down(found.shown, workers_only=workers_only))
        show(*shown_leftovers(found, preempted_only=workers_only or preempted_only))
        return
    if preempted_only:
        clear_leftovers(found, preempted_only=True)
        return
    found.check_names()
    what = "the workers of" if workers_only else "all VMs of"
    confirm(f"Remove {what} {found.name}, with everything that runs on them?", yes=yes)
    expect_workers_again(found.config)
    run(ray_commands.down(found.shown, workers_only=workers_only))
    clear_leftovers(found, preempted_only=workers_only)
    if not workers_only:
        launched_files().forget(found.file)


@click.command("status")
@cluster_option
@dry_run_option
@click.pass_context
def status(ctx: click.Context, cluster: str, dry_run: bool) -> None:
    """Show nodes, resources and pending demands, from `ray status` on the head."""
    found = load_cluster_file(cluster)
    if dry_run:
        show(ray_commands.execute(found.shown, "ray status"))
        return
    ctx.exit(run_on_head(found.shown, "ray status", _print))


@click.command("monitor")
@cluster_option
@click.option("--lines", type=int, default=100, show_default=True, help="Number of earlier lines to print first.")
@dry_run_option
@click.pass_context
def monitor(ctx: click.Context, cluster: str, lines: int, dry_run: bool) -> None:
    """Print the autoscaler's log until Ctrl-C."""
    command = ray_commands.monitor(load_cluster_file(cluster).shown, lines)
    if dry_run:
        show(command)
        return
    ctx.exit(run_in_terminal(command))


@click.command("ssh", context_settings={"ignore_unknown_options": True})
@cluster_option
@dry_run_option
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def ssh(ctx: click.Context, cluster: str, dry_run: bool, words: tuple[str, ...]) -> None:
    """Open a shell on the head; with a command, print its output and exit with its code."""
    if words:
        _execute(ctx, cluster, words, dry_run)
        return
    command = ray_commands.attach(load_cluster_file(cluster).shown)
    if dry_run:
        show(command)
        return
    ctx.exit(run_in_terminal(command))


@click.command("exec", context_settings={"allow_interspersed_args": False})
@dry_run_option
@click.argument("cluster", metavar="NAME|FILE")
@click.argument("words", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def execute(ctx: click.Context, cluster: str, words: tuple[str, ...], dry_run: bool) -> None:
    """Run a command on the head, print its output and exit with its code. A single argument is a shell command."""
    words = words[1:] if words[0] == "--" else words
    if not words:
        raise click.UsageError("no command after --", ctx)
    _execute(ctx, cluster, words, dry_run)


def _execute(ctx: click.Context, cluster: str, words: tuple[str, ...], dry_run: bool) -> None:
    found = load_cluster_file(cluster)
    text = words[0] if len(words) == 1 else shlex.join(words)
    if dry_run:
        show(ray_commands.execute(found.shown, text))
        return
    ctx.exit(run_on_head(found.shown, text, _print))


@click.command(
    "submit",
    add_help_option=False,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
@click.argument("words", metavar="NAME|FILE|URL [OPTIONS] -- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def submit(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Submit a command as a job and follow it: `ray_run --cluster NAME|FILE|URL [OPTIONS] -- COMMAND`."""
    ray_run.leave_process_list()
    ctx.exit(ray_run.main(words if not words or words[0].startswith("-") else ["--cluster", *words]))


@click.command("add-worker")
@cluster_option
@click.argument("types", metavar="TYPE[=COUNT]...", nargs=-1, required=True)
@dry_run_option
@click.pass_context
def add_worker(ctx: click.Context, cluster: str, types: tuple[str, ...], dry_run: bool) -> None:
    """Keep COUNT workers of a TYPE, even without work for them (at most the type's max_workers).

    This replaces the previous request. TYPE=0 cancels it.
    """
    found = load_cluster_file(cluster)
    head = found.config.get("head_node_type")
    known = {
        name: described.get("resources") or {}
        for name, described in (found.config.get("available_node_types") or {}).items()
        if name != head
    }
    counts = ray_commands.parse_counts(types, known)
    for name, count in counts.items():
        most = found.config["available_node_types"][name].get("max_workers", count)
        if count > most:
            raise InvalidRequest(f"{name}={count}: its max_workers is {most}; change the file and `update` first")
    command = ray_commands.request_workers(found.shown, counts, known)
    if dry_run:
        show(command)
        return
    ctx.exit(run_on_head(found.shown, command.words[-1], _print))


def _print(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()
