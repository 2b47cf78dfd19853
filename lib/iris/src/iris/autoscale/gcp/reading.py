"""Reads what Google lists: nodes, queued resources, instances. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from iris.autoscale.gcp.outcomes import Json, answer_of_failure
from iris.autoscale.gcp.ownership import CONTROLLER_ROLE, GROUP_LABEL, ROLE_LABEL
from iris.autoscale.model import Outcome
from iris.autoscale.port import Phase


class Kind(StrEnum):
    """The kinds of things that a cluster has at Google."""

    NODE = "node"
    QUEUED = "queued resource"
    INSTANCE = "instance"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is, or would be.

    Args:
        kind: A queued resource stands for its node, too.
        name: The short name.
    """

    kind: Kind
    project: str
    zone: str
    name: str

    @property
    def parent(self) -> str:
        """Return the path in which it is created."""
        if self.kind is Kind.INSTANCE:
            return f"compute/v1/projects/{self.project}/zones/{self.zone}/instances"
        collection = "nodes" if self.kind is Kind.NODE else "queuedResources"
        return f"v2/projects/{self.project}/locations/{self.zone}/{collection}"

    @property
    def path(self) -> str:
        """Return the path of its requests."""
        return f"{self.parent}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name} in {self.zone} ({self.project})"


@dataclass(frozen=True, slots=True)
class Listed:
    """Something that Google lists.

    Args:
        place: Where it is.
        labels: Its labels.
        phase: What its state means. state: Google's word for it.
        type: The accelerator type or machine type.
        words: Google's words about its state.
        outcome: Why it failed, if it did before it was ready.
        addresses: Internal addresses of its hosts, in order.
        external_addresses: The same, from outside.
    """

    place: Place
    labels: Mapping[str, str]
    phase: Phase
    state: str
    type: str
    words: str = ""
    outcome: Outcome = Outcome.UNKNOWN
    addresses: tuple[str, ...] = ()
    external_addresses: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Return the label with the scale group; empty for the controller."""
        return self.labels.get(GROUP_LABEL, "")

    @property
    def is_controller(self) -> bool:
        """Return whether it is the controller's virtual machine."""
        return self.labels.get(ROLE_LABEL) == CONTROLLER_ROLE


# States that are not here, or that Google adds later, count as CREATING: the boot deadline decides.
_NODE_PHASES: Final[Mapping[str, Phase]] = {
    "READY": Phase.READY,
    # Its hosts may come back by themselves; those that do not are lost as workers.
    "RESTARTING": Phase.READY,
    "REIMAGING": Phase.READY,
    "REPAIRING": Phase.READY,
    "PREEMPTED": Phase.BROKEN,
    "TERMINATED": Phase.BROKEN,
    "STOPPING": Phase.BROKEN,
    "STOPPED": Phase.BROKEN,
    "HIDING": Phase.BROKEN,
    "HIDDEN": Phase.BROKEN,
    "UNKNOWN": Phase.BROKEN,  # "unknown state after a failed repair"
    "DELETING": Phase.DELETING,
}
_QUEUED_PHASES: Final[Mapping[str, Phase]] = {
    "FAILED": Phase.BROKEN,
    "SUSPENDING": Phase.BROKEN,
    "SUSPENDED": Phase.BROKEN,
    "DELETING": Phase.DELETING,
}
_INSTANCE_PHASES: Final[Mapping[str, Phase]] = {
    "RUNNING": Phase.READY,
    "REPAIRING": Phase.READY,
    "PENDING_STOP": Phase.BROKEN,
    "STOPPING": Phase.BROKEN,
    "STOPPED": Phase.BROKEN,
    "SUSPENDING": Phase.BROKEN,
    "SUSPENDED": Phase.BROKEN,
    "TERMINATED": Phase.BROKEN,
    "DEPROVISIONING": Phase.DELETING,
}


def read_tpus(project: str, nodes: Iterable[Json], queued: Iterable[Json]) -> list[Listed]:
    """Return the nodes and queued resources of a project; a node belongs to its queued resource.

    Args:
        project: The project.
        nodes: Its listed nodes.
        queued: Its listed queued resources.
    """
    alone: list[Listed] = []
    of_queue: dict[str, Listed] = {}
    for node in nodes:
        read = _node(project, node)
        if node.get("queuedResource"):
            of_queue[str(node["queuedResource"]).partition("/locations/")[2]] = read
        else:
            alone.append(read)
    for body in queued:
        own = _queued(project, body)
        inner = of_queue.pop(str(body["name"]).partition("/locations/")[2], None)
        if inner is None:
            alone.append(own)
        elif own.phase is Phase.CREATING:
            alone.append(replace(inner, place=own.place))
        else:
            alone.append(replace(own, addresses=inner.addresses, external_addresses=inner.external_addresses))
    return alone + list(of_queue.values())


def read_instances(project: str, bodies: Iterable[Json]) -> list[Listed]:
    """Return the instances in the pages of an aggregated list."""
    scopes = (scope for body in bodies for scope in body.get("items", {}).values())
    return [_instance(project, found) for scope in scopes for found in scope.get("instances", ())]


def labels_of(kind: Kind, body: Json) -> Mapping[str, str]:
    """Return the labels in the record of something; a queued resource has those of its node."""
    found: Mapping[str, str] = (_inner_node(body) if kind is Kind.QUEUED else body).get("labels", {})
    return found


def is_being_deleted(kind: Kind, body: Json) -> bool:
    """Return whether the deletion of a TPU has begun; instances do not tell it from a stop."""
    state = body.get("state")
    return kind is not Kind.INSTANCE and "DELETING" in (state, state.get("state") if isinstance(state, Mapping) else "")


def _node(project: str, body: Json) -> Listed:
    state, health = str(body.get("state", "")), str(body.get("health", ""))
    words = "" if state == "READY" else f"the node is {state}"
    if health not in ("", "HEALTHY", "HEALTH_UNSPECIFIED"):
        words = f"{words or 'the node'}: {health} {body.get('healthDescription', '')}".strip()
    ends = body.get("networkEndpoints", ())
    return Listed(
        _tpu_place(Kind.NODE, project, str(body["name"])),
        body.get("labels", {}),
        _NODE_PHASES.get(state, Phase.CREATING),
        state,
        str(body.get("acceleratorType", "")),
        words,
        addresses=tuple(str(end.get("ipAddress", "")) for end in ends),
        external_addresses=tuple(str(end.get("accessConfig", {}).get("externalIp", "")) for end in ends),
    )


def _queued(project: str, body: Json) -> Listed:
    state = body.get("state", {})
    word = str(state.get("state", ""))
    failed = state.get("failedData", {}).get("error")
    answer = answer_of_failure(int(failed.get("code", 0)), str(failed.get("message", ""))) if failed else None
    return Listed(
        _tpu_place(Kind.QUEUED, project, str(body["name"])),
        labels_of(Kind.QUEUED, body),
        _QUEUED_PHASES.get(word, Phase.CREATING),
        word,
        str(_inner_node(body).get("acceleratorType", "")),
        answer.words if answer else f"the queued resource is {word}",
        answer.outcome if answer else Outcome.UNKNOWN,
    )


def _instance(project: str, body: Json) -> Listed:
    state = str(body.get("status", ""))
    networks = body.get("networkInterfaces", ())
    outside = (access.get("natIP", "") for network in networks[:1] for access in network.get("accessConfigs", ())[:1])
    message = str(body.get("statusMessage", ""))
    return Listed(
        Place(Kind.INSTANCE, project, _last(body.get("zone", "")), str(body["name"])),
        body.get("labels", {}),
        _INSTANCE_PHASES.get(state, Phase.CREATING),
        state,
        _last(body.get("machineType", "")),
        "" if state == "RUNNING" else f"the instance is {state}" + (f": {message}" if message else ""),
        addresses=tuple(str(network.get("networkIP", "")) for network in networks[:1]),
        external_addresses=tuple(outside),
    )


def _inner_node(body: Json) -> Json:
    specs = body.get("tpu", {}).get("nodeSpec") or [{}]
    found: Json = specs[0].get("node", {})
    return found


def _tpu_place(kind: Kind, project: str, name: str) -> Place:
    parts = name.split("/")  # projects/PROJECT/locations/ZONE/nodes/NAME
    return Place(kind, project, parts[3], parts[5])


def _last(url: Any) -> str:
    return str(url).rpartition("/")[2]
