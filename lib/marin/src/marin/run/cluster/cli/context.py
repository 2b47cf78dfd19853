"""Shared parts of the cluster commands: the cluster's file, options, output, confirmations."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from marin.run.cluster.file.changes import check_no_orphans
from marin.run.cluster.file.validate import check_cluster_file
from marin.run.cluster.launched import LaunchedFiles, names_on_head, state_folder
from marin.run.cluster.nodes.google import GoogleNodes
from marin.run.cluster.nodes.leftovers import CLUSTER_LABEL, remove_leftovers
from marin.run.cluster.ray_commands import RayCommand, shown_file
from marin.run.cluster_target import ClusterTarget, find_cluster_file, read_cluster_file
from rigging.errors import InvalidRequest

DEFAULT_CLUSTER: Final = "marin-cluster"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A cluster as described by its file.

    Args:
        shown: The file's path as passed to `ray`.
    """

    file: Path
    shown: str
    config: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.config["cluster_name"])

    @property
    def target(self) -> ClusterTarget:
        return ClusterTarget("", f"--cluster {self.shown}", file=self.file)

    def check(self) -> None:
        """Raise InvalidRequest for mistakes in the file."""
        check_cluster_file(self.config, self.shown)

    def check_names(self) -> None:
        """Raise Conflict if names in the file differ from those of running nodes, as recorded here or on the head."""
        running = launched_files().find(self.file) or names_on_head(self.shown)
        if running is not None:
            check_no_orphans(running, self.config, self.shown)


def load_cluster_file(cluster: str) -> ClusterFile:
    """Read the file of a cluster, given by name or path. Raise NotFound or InvalidRequest."""
    file = find_cluster_file(cluster)
    return ClusterFile(file, shown_file(file, Path.cwd()), read_cluster_file(file))


def launched_files() -> LaunchedFiles:
    """Return this user's notes of started clusters."""
    return LaunchedFiles(state_folder(os.environ, Path.home()))


def cluster_option(function: F) -> F:
    """Add --cluster to a command that needs a cluster's file."""
    return click.option(
        "--cluster",
        metavar="NAME|FILE",
        default=DEFAULT_CLUSTER,
        show_default=True,
        help="infra/marin-NAME.yaml, infra/NAME.yaml, or a Ray cluster file.",
    )(function)


def dry_run_option(function: F) -> F:
    """Add --dry-run to a command."""
    return click.option("--dry-run", is_flag=True, help="Print the commands that would run, and run nothing.")(function)


def yes_option(function: F) -> F:
    """Add -y to a command."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


def show(*commands: RayCommand | str) -> None:
    """Print the commands that would run, for --dry-run."""
    for command in commands:
        click.echo(str(command))


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a destructive action. Raise Abort for no, and InvalidRequest without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest(f"{question} There is no terminal to ask; use --yes")
    click.confirm(question, abort=True)


def say(text: str) -> None:
    """Print a message to stderr."""
    click.echo(f"cluster: {text}", err=True)


def clear_leftovers(found: ClusterFile, *, preempted_only: bool = False) -> None:
    """Delete nodes that `ray down` left on Google Cloud (see `remove_leftovers`). Do nothing for other providers."""
    provider = found.config.get("provider") or {}
    if provider.get("type") == "gcp":
        remove_leftovers(
            GoogleNodes(provider),
            found.name,
            preempted_only=preempted_only,
            on_delete=lambda node: say(f"Ray has left {node}: deleting it"),
        )


def shown_leftovers(found: ClusterFile, *, preempted_only: bool = False) -> list[str]:
    """Return the nodes that `clear_leftovers` would delete, as lines for --dry-run."""
    provider = found.config.get("provider") or {}
    if provider.get("type") != "gcp":
        return []
    which = "preempted" if preempted_only else "in any state"
    return [f"DELETE {url}/*  (left, {which}, {CLUSTER_LABEL}={found.name})" for url in GoogleNodes(provider).urls]
