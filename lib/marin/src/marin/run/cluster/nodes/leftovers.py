"""Nodes of a Google Cloud cluster that Ray no longer sees: preempted slices, stopped and broken VMs.

Ray's provider only sees nodes that start or run. `ray down` therefore ignores preempted slices, which stay on Google's
list, and VMs that are stopped or under repair.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rigging.errors import Conflict

CLUSTER_LABEL: Final = "ray-cluster-name"
KIND_LABEL: Final = "ray-node-type"
_PREEMPTED: Final = frozenset({"PREEMPTED", "TERMINATED"})
_LONGEST_INTERVAL: Final = 5.0
_GOING: Final = frozenset({"DELETING", "HIDING", "HIDDEN"})


@dataclass(frozen=True, slots=True)
class CloudNode:
    """A TPU slice or a VM, as reported by Google's APIs.

    Args:
        name: The full name of a slice (projects/P/locations/Z/nodes/N), or the short name of a VM.
        state: Google's state, e.g. READY, PREEMPTED, RUNNING, TERMINATED.
    """

    name: str
    state: str
    labels: Mapping[str, str]
    is_slice: bool

    def __str__(self) -> str:
        return f"{'slice' if self.is_slice else 'VM'} {self.name.rpartition('/')[2]} ({self.state})"


class CloudNodes(Protocol):
    """The nodes of a project in a zone."""

    def list(self) -> Sequence[CloudNode]:
        """Return all nodes, of any cluster. Raise Unavailable."""

    def delete(self, node: CloudNode) -> None:
        """Request the deletion of a node. Ignore a node that is gone or cannot be deleted now. Raise Unavailable."""


def select_leftovers(nodes: Sequence[CloudNode], cluster: str, *, preempted_only: bool) -> list[CloudNode]:
    """Return the nodes to delete after a cluster was removed.

    Args:
        nodes: All nodes of the project in the zone.
        cluster: The cluster's name.
        preempted_only: Return only preempted workers, which the autoscaler has replaced: the cluster continues.
    """
    found = [node for node in nodes if node.labels.get(CLUSTER_LABEL) == cluster and node.state not in _GOING]
    if preempted_only:
        return [node for node in found if node.labels.get(KIND_LABEL) == "worker" and node.state in _PREEMPTED]
    return found


def remove_leftovers(
    nodes: CloudNodes,
    cluster: str,
    *,
    preempted_only: bool,
    on_delete: Callable[[CloudNode], None],
    timeout: float = 300.0,
    poll_interval: float = 0.1,
) -> None:
    """Delete the remaining nodes of a cluster, and wait until they are gone.

    Args:
        nodes: The nodes of the project in the zone.
        cluster: The cluster's name.
        preempted_only: As in `select_leftovers`.
        on_delete: Called with each node before it is deleted.
        timeout: Timeout in seconds for the nodes to disappear.
        poll_interval: First polling interval in seconds. It grows.

    Raises:
        Conflict: Some nodes remain. The message names them.
        Unavailable: Google's APIs do not answer, or refuse.
    """
    deadline = time.monotonic() + timeout
    told: set[str] = set()
    while left := select_leftovers(nodes.list(), cluster, preempted_only=preempted_only):
        for node in left:
            if node.name not in told:
                on_delete(node)
            told.add(node.name)
            nodes.delete(node)  # again: one that was being stopped could not be deleted before
        if time.monotonic() > deadline:
            named = ", ".join(map(str, left))
            raise Conflict(f"cluster {cluster}: {named} still there after {timeout:g} s; remove them by hand")
        time.sleep(poll_interval)
        poll_interval = min(2 * poll_interval, _LONGEST_INTERVAL)
