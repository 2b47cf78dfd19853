"""Provides all commands with the chosen cluster and its client."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iris.cli.output import say
from rigging.cli.asking import ask, is_interactive
from rigging.clock import unix_ms

if TYPE_CHECKING:
    from iris.client import IrisClient
    from iris.client.connection.discovery import ClusterTarget
    from iris.local.start import LocalCluster
    from iris.local.state import LocalPaths
    from iris.local.stop import ClusterProcesses


@dataclass(slots=True)
class CliContext:
    """The global options, and access to clusters, their processes and the clock.

    Modules that need gRPC are imported on first use, because `iris --help` must be fast.
    """

    cluster: str | None = None
    config: str | None = None
    controller_url: str | None = None
    token_file: str | None = None
    insecure: bool = False
    verbose: bool = False
    ask: Callable[[str], bool] = ask
    is_interactive: Callable[[], bool] = is_interactive
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def target(self, on_warning: Callable[[str], None] = say) -> "ClusterTarget":
        """Return the chosen cluster. Raise InvalidRequest or NotFound."""
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
                on_warning(f"warning: {warning}")
        return found

    def running(self, target: "ClusterTarget") -> "ClusterTarget | None":
        """Return the chosen cluster if a client may use it without starting it; None for a local cluster that is not
        running.
        """
        from iris.client.connection.discovery import running_cluster

        if not target.is_local:
            return target
        record = self.local_of(target).find()
        return None if record is None else running_cluster(record, target.name)

    def local_of(self, target: "ClusterTarget") -> "LocalCluster":
        """Return the requested local cluster: the embedded one, or the local run of a cluster file."""
        return self.local_cluster() if target.paths is None else self.local_cluster(paths=target.paths)

    def local_cluster(self, **options: Any) -> "LocalCluster":
        """Return the user's local cluster, running or not. For `options` see `LocalCluster`."""
        from iris.local.start import LocalCluster

        return LocalCluster(**options)

    def processes(self, paths: "LocalPaths") -> "ClusterProcesses":
        """Return the processes of a local cluster."""
        from iris.local.stop import ClusterProcesses

        return ClusterProcesses(paths)

    def config_path(self) -> Path | None:
        """Return the chosen config file, if there is one. Raise NotFound."""
        from rigging.config_discovery import resolve_cluster_config

        name = self.config or (self.cluster if self.cluster != "local" else None)
        return resolve_cluster_config(name) if name else None

    @contextlib.contextmanager
    def client(self, workspace: Path | None = None) -> Iterator["IrisClient"]:
        """Return a client of the chosen cluster, starting a local cluster if needed."""
        with self.connect(self.target(), workspace, on_warning=say, on_interrupted=say) as client:
            yield client

    def connect(
        self, target: "ClusterTarget", workspace: Path | None = None, **options: Any
    ) -> "AbstractContextManager[IrisClient]":
        """Return a client of a cluster. For `options` see `IrisClient.of`."""
        from iris.client import IrisClient

        return IrisClient.of(target, workspace, **options)

    def now_ms(self) -> int:
        """Return the current time in Unix ms."""
        return unix_ms()

    def execute(self, command: list[str], environ: Mapping[str, str]) -> None:
        """Replace this program with another (exec)."""
        os.execve(command[0], command, environ)


pass_context = click.make_pass_decorator(CliContext)
