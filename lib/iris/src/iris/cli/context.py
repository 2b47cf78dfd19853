"""Shared by all commands: the choice of the cluster, and a client of it."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iris.cli.output import say
from rigging.clock import unix_ms

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.connection.discovery import ClusterTarget
    from iris.local.start import LocalCluster
    from iris.local.state import LocalPaths
    from iris.local.stop import ClusterProcesses


@dataclass(slots=True)
class CliContext:
    """The global options, and what commands reach by them: clusters, their processes, the clock.

    Everything that needs gRPC is imported when it is used: `iris --help` must be quick.
    """

    cluster: str | None = None
    config: str | None = None
    controller_url: str | None = None
    token_file: str | None = None
    insecure: bool = False
    verbose: bool = False

    def target(self) -> "ClusterTarget":
        """The cluster that is meant. Raises InvalidRequest or NotFound."""
        from iris.client.connection.discovery import find_cluster

        found = find_cluster(
            self.cluster,
            config=self.config,
            address=self.controller_url,
            token_file=self.token_file,
            insecure=self.insecure,
            local=self.local_cluster(on_event=say),
        )
        if found.token_file:
            from iris.tls.token_file import privacy_warning

            if warning := privacy_warning(found.token_file):
                say(f"warning: {warning}")
        return found

    def local_cluster(self, **options: Any) -> "LocalCluster":
        """The user's local cluster, running or not; for `options` see `LocalCluster`."""
        from iris.local.start import LocalCluster

        return LocalCluster(**options)

    def processes(self, paths: "LocalPaths") -> "ClusterProcesses":
        """The processes of a local cluster, to be ended."""
        from iris.local.stop import ClusterProcesses

        return ClusterProcesses(paths)

    def config_path(self) -> Path | None:
        """The config file that is meant, if one is. Raises NotFound."""
        from rigging.config_discovery import resolve_cluster_config

        name = self.config or (self.cluster if self.cluster != "local" else None)
        return resolve_cluster_config(name) if name else None

    @contextlib.contextmanager
    def client(self, workspace: Path | None = None) -> Iterator["IrisClient"]:
        """A client of the cluster that is meant; the local one is started when it does not run."""
        with self.connect(self.target(), workspace, on_warning=say, on_interrupted=say) as client:
            yield client

    def connect(
        self, target: "ClusterTarget", workspace: Path | None = None, **options: Any
    ) -> "AbstractContextManager[IrisClient]":
        """A client of a cluster; for `options` see `IrisClient.of`."""
        from iris.client import IrisClient

        return IrisClient.of(target, workspace, **options)

    def now_ms(self) -> int:
        """The time, in Unix ms."""
        return unix_ms()

    def execute(self, command: list[str], environ: Mapping[str, str]) -> None:
        """Run another program in place of this one."""
        os.execve(command[0], command, environ)


pass_context = click.make_pass_decorator(CliContext)
