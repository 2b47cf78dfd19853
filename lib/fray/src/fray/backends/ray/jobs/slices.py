"""Capacity for gangs on Ray: placement groups for all replicas of a job, one per TPU slice."""

import logging
import math
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray.resources import head_resource, host_resources, task_options
from fray.types import ResourceConfig, TpuConfig
from rigging.topology import get_tpu_topology

logger = logging.getLogger(__name__)

SLICE_LABEL = "ray.io/tpu-slice-name"
WORKER_LABEL = "ray.io/tpu-worker-id"
_READY_SECONDS = 0.5
_SLICE_SECONDS = 60.0
_MEGASCALE_PORT = 8081


@dataclass(frozen=True, slots=True)
class ReplicaPlacement:
    """The place of one replica: a bundle of a placement group, matching task options, and the variables it needs."""

    group: Any
    bundle: int
    options: dict[str, Any]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Placement:
    """The places of all replicas. As a context manager it releases the placement groups at the end."""

    replicas: list[ReplicaPlacement]
    groups: list[Any]

    def __enter__(self) -> "Placement":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def node_ids(self) -> list[str]:
        """The nodes of the replicas."""
        return [_nodes_of(place.group)[place.bundle] for place in self.replicas]

    def release(self) -> None:
        """Release everything. Calling it again does nothing."""
        groups, self.groups = self.groups, []
        for group in groups:
            if ray.is_initialized():
                remove_placement_group(group)


class GangPlacer:
    """Find capacity for the replicas of one job.

    Replicas without a TPU, and slices of one host, form one placement group. A slice of several hosts is also one
    placement group, whose bundles all request the slice by name. A group that first holds the `TPU-<type>-head` of each
    slice selects it, so that two gangs never share a slice and a gang of several slices gets all or none.

    Args:
        name: Names the placement groups.
        resources: The resources of each replica.
        replicas: The number of replicas.
    """

    def __init__(self, name: str, resources: ResourceConfig, replicas: int) -> None:
        self._name = name
        self._replicas = replicas
        self._taken = host_resources(resources)
        self._tpu = resources.device.variant if isinstance(resources.device, TpuConfig) else None
        self._hosts = get_tpu_topology(self._tpu).vm_count if self._tpu else 1

    def acquire(self, halt: threading.Event) -> Placement | None:
        """Wait for capacity. Return None if `halt` was set first."""
        broken: list[Any] = []
        try:
            while not halt.is_set():
                placement = self._slices(halt, broken) if self._hosts > 1 else self._one_group(halt)
                if placement is not None:
                    return placement
            return None
        finally:
            Placement([], broken).release()

    def _one_group(self, halt: threading.Event) -> Placement | None:
        strategy = "STRICT_SPREAD" if self._tpu else "PACK"
        group = placement_group([dict(self._taken)] * self._replicas, strategy=strategy, name=_unique(self._name))
        placement = Placement([], [group])
        if not _wait_ready(group, halt):
            placement.release()
            return None
        options = task_options(self._taken)
        placement.replicas = [
            ReplicaPlacement(group, index, options, self._megascale(index, group) if self._tpu else {})
            for index in range(self._replicas)
        ]
        return placement

    def _slices(self, halt: threading.Event, broken: list[Any]) -> Placement | None:
        """Try to get whole slices. Heads of incomplete slices are added to `broken`, so that others are tried."""
        assert self._tpu is not None
        count = -(-self._replicas // self._hosts)
        heads = placement_group(
            [{head_resource(self._tpu): 1}] * count, strategy="STRICT_SPREAD", name=_unique(self._name)
        )
        placement = Placement([], [heads])
        try:
            if not _wait_ready(heads, halt, _SLICE_SECONDS if broken else None):
                # No other slice came up meanwhile: those may have been mended.
                Placement([], broken[:]).release()
                broken.clear()
                return None
            head_nodes = _nodes_of(heads)
            groups = [self._slice_group(head_nodes[index]) for index in range(count)]
            placement.groups.extend(group for group in groups if group is not None)
            for group in groups:
                if group is None or not _wait_ready(group, halt, _SLICE_SECONDS):
                    logger.warning("job %r: a slice of %s is incomplete; looking for another", self._name, self._tpu)
                    broken.append(placement.groups.pop(0))
                    return None
            nodes = ray_cluster.nodes()
            for index, group in enumerate(groups):
                megascale = self._megascale(index, heads)
                for bundle in host_order(_nodes_of(group), nodes, head_nodes[index]):
                    options = task_options(group.bundle_specs[bundle])
                    placement.replicas.append(ReplicaPlacement(group, bundle, options, megascale))
            del placement.replicas[self._replicas :]
            return placement
        finally:
            if not placement.replicas:
                placement.release()

    def _slice_group(self, head_node: str) -> Any:
        """Return a group of all hosts of the slice whose first host is this node; None if the slice is unknown."""
        nodes = ray_cluster.nodes()
        head = next((node for node in nodes if node["NodeID"] == head_node and node["Alive"]), None)
        if head is None:
            return None
        label = head.get("Labels", {}).get(SLICE_LABEL)
        name = slice_resource(head, nodes, self._hosts)
        if name is not None:
            if sum(node["Alive"] and name in node["Resources"] for node in nodes) < self._hosts:
                return None
            bundles = [{**self._taken, name: 1} for _ in range(self._hosts)]
            return placement_group(bundles, strategy="STRICT_SPREAD", name=_unique(self._name))
        if label is None:
            return None
        return placement_group(
            [dict(self._taken)] * self._hosts,
            strategy="STRICT_SPREAD",
            name=_unique(self._name),
            bundle_label_selector=[{SLICE_LABEL: label}] * self._hosts,
        )

    def _megascale(self, index: int, heads: Any) -> dict[str, str]:
        """Return the variables that let libtpu connect several slices."""
        count = -(-self._replicas // self._hosts)
        if count == 1:
            return {}
        first = _nodes_of(heads)[0]
        address = next((node["NodeManagerAddress"] for node in ray_cluster.nodes() if node["NodeID"] == first), "")
        return {
            "MEGASCALE_COORDINATOR_ADDRESS": f"{address}:{_MEGASCALE_PORT}",
            "MEGASCALE_NUM_SLICES": str(count),
            "MEGASCALE_SLICE_ID": str(index),
            "MEGASCALE_PORT": str(_MEGASCALE_PORT),
        }


def slice_resource(head: Mapping[str, Any], nodes: list[dict[str, Any]], hosts: int) -> str | None:
    """Return the resource that only the hosts of a slice have, or None.

    Args:
        head: The slice's first host, as Ray describes it.
        nodes: All nodes, including dead ones.
        hosts: The number of hosts in the slice.
    """
    label = head.get("Labels", {}).get(SLICE_LABEL)
    if label in head["Resources"]:
        return str(label)
    for name in head["Resources"]:
        if name in ("CPU", "GPU", "TPU", "memory", "object_store_memory") or name.startswith(
            ("node:", "accelerator_type:", "TPU-")
        ):
            continue
        # Hosts that are gone count: a slice that lost one is still that slice, until its nodes are new ones.
        holders = {node["NodeID"] for node in nodes if node["Alive"] and name in node["Resources"]}
        if 1 < len(holders) <= hosts and head["Resources"][name] == 1:
            return str(name)
    return None


def host_order(placed: Mapping[int, str], nodes: Sequence[Mapping[str, Any]], head: str) -> list[int]:
    """Return the bundles of a slice's group in TPU host order, where Ray reveals it.

    Args:
        placed: The node of each bundle.
        nodes: The nodes as Ray describes them.
        head: The slice's first host.
    """
    numbers = {node["NodeID"]: str(node.get("Labels", {}).get(WORKER_LABEL, "")) for node in nodes}

    def place(bundle: int) -> tuple[bool, float, int]:
        node = placed[bundle]
        number = numbers.get(node, "")
        return node != head, int(number) if number.isdigit() else math.inf, bundle

    return sorted(placed, key=place)


def _unique(name: str) -> str:
    # Ray refuses a second placement group of one name.
    return f"{name}-{uuid.uuid4().hex[:8]}"


def _wait_ready(group: Any, halt: threading.Event, timeout: float | None = None) -> bool:
    waited = 0.0
    while not halt.is_set():
        if group.wait(_READY_SECONDS):
            return True
        waited += _READY_SECONDS
        if timeout is not None and waited >= timeout:
            return False
    return False


def _nodes_of(group: Any) -> dict[int, str]:
    return dict(placement_group_table(group)["bundles_to_node_id"])
