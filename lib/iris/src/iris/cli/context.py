"""Shared by all commands: the choice of the cluster, and a client of it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iris.cli.output import say

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.connection.discovery import ClusterTarget


@dataclass(slots=True)
class CliContext:
    """The global options. Everything that needs gRPC is imported when it is used: `iris --help` must be quick."""

    cluster: str | None = None
    config: str | None = None
    controller_url: str | None = None
    verbose: bool = False

    def target(self) -> "ClusterTarget":
        """The cluster that is meant. Raises InvalidRequest or NotFound."""
        from iris.client.connection.discovery import find_cluster
        from iris.local.start import LocalCluster

        return find_cluster(
            self.cluster, config=self.config, address=self.controller_url, local=LocalCluster(on_event=say)
        )

    def config_path(self) -> Path | None:
        """The config file that is meant, if one is. Raises NotFound."""
        from rigging.config_discovery import resolve_cluster_config

        name = self.config or (self.cluster if self.cluster != "local" else None)
        return resolve_cluster_config(name) if name else None

    @contextlib.contextmanager
    def client(self, workspace: Path | None = None) -> Iterator["IrisClient"]:
        """A client of the cluster that is meant; the local one is started when it does not run."""
        from iris.client import IrisClient

        with IrisClient.of(self.target(), workspace, on_warning=say, on_interrupted=say) as client:
            yield client


pass_context = click.make_pass_decorator(CliContext)
