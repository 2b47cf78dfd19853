"""Nodes of a Google Cloud cluster that Ray does not see any more: preempted slices, stopped and broken VMs.

Ray's provider looks only at nodes that start or run. What was preempted stays on Google's list, replaced and of no
use, and `ray down` passes it by; so it does VMs that are stopped, or under repair and soon alive again.
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
    """A TPU slice or a VM, as Google's APIs tell.

    Args:
        name: Of a slice its full name (projects/P/locations/Z/nodes/N), of a VM the short one.
        state: Google's word, e.g. READY, PREEMPTED, RUNNING, TERMINATED.
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
        """Return all of them, of whichever cluster. Raises Unavailable."""

    def delete(self, node: CloudNode) -> None:
        """Ask that a node be deleted; no error if it is gone or cannot be deleted just now. Raises Unavailable."""


def select_leftovers(nodes: Sequence[CloudNode], cluster: str, *, preempted_only: bool) -> list[CloudNode]:
    """Return the nodes to delete after a cluster was removed.

    Args:
        nodes: All nodes of the project in the zone.
        cluster: The cluster's name.
        preempted_only: The cluster goes on: return only preempted workers, which its autoscaler has replaced.
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
        preempted_only: See `select_leftovers`.
        on_delete: Called with each node before it is deleted.
        timeout: Seconds until what is still there is an error.
        poll_interval: Seconds between the first two looks; it grows.

    Raises:
        Conflict: Names what is still there.
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
