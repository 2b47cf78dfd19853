"""Reaches the controller of a cluster elsewhere."""

import os
import socket
from dataclasses import dataclass
from typing import Final

from iris.client import IrisClient
from iris.client.connection.discovery import cluster_at
from iris.client.connection.target import ClusterTarget
from iris.lifecycle.cluster import CloudCluster
from iris.lifecycle.machines import Machine
from iris.local.saved_clusters import save_cluster
from rigging.errors import MarinError, Unavailable

_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Reached:
    """A controller that answers: its "host:port", an admin's token for it, and its release."""

    address: str
    token: str
    version: str

    def target(self, name: str) -> ClusterTarget:
        """Return the cluster for a client.

        Args:
            name: Its readable name.
        """
        found = cluster_at(self.address, token=self.token, environ={})
        return ClusterTarget(name, found.resolve, user=found.user)


def reach(cluster: CloudCluster, machine: Machine) -> Reached:
    """Return the controller on a machine. Try outer addresses first. Blocks.

    Args:
        cluster: The cluster, whose remote state has the secret of its tokens.
        machine: The controller's machine.

    Raises:
        MarinError: It does not answer; with the reason at the last address.
    """
    trouble: MarinError = Unavailable("it has no address yet")
    for host in filter(None, dict.fromkeys((*machine.external, *machine.addresses))):
        address = f"{host}:{cluster.port}"
        try:
            _check_port(host, cluster.port)
            token = cluster.token()
            reached = Reached(address, token, "")
            with IrisClient.of(reached.target(cluster.name), patience=_ANSWER_S) as client:
                return Reached(address, token, client.cluster_status().version)
        except MarinError as error:
            trouble = error
    raise trouble


def save(cluster: CloudCluster, reached: Reached) -> None:
    """Save a cluster under its name, for later commands of this user."""
    save_cluster(os.environ, cluster.name, cluster.file, reached.address, reached.token)


def _check_port(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except TimeoutError:
        raise Unavailable(f"{host}:{port} accepts no connection: let the firewall pass TCP port {port}") from None
    except OSError as error:
        raise Unavailable(f"{host}:{port} cannot be reached: {error.strerror or error}") from None
