"""The slices of a cluster file's scale groups that this machine can start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iris.autoscale.model import SLICE_ATTRIBUTE
from iris.cluster.constraints import WellKnownAttribute
from iris.domain.ids import WorkerId
from iris.domain.resources import Resources
from iris.domain.scale_groups import GROUP_ATTRIBUTE, ScaleGroup
from iris.local.state import host_worker_id


@dataclass(frozen=True, slots=True)
class FakeHost:
    """One host of a slice: a worker process on this machine with the resources from the file.

    Args:
        name: Its unique name in the cluster, and the name of its directory.
        capacity: The offered resources, regardless of this machine's.
        attributes: Attributes for constraints, in addition to the detected ones.
    """

    name: str
    capacity: Resources
    attributes: tuple[tuple[str, str], ...]

    @property
    def worker_id(self) -> WorkerId:
        """The id of the host's worker."""
        return WorkerId(host_worker_id(self.name))


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice of a scale group, whose hosts start and end together."""

    group: ScaleGroup
    name: str

    @property
    def hosts(self) -> tuple[FakeHost, ...]:
        """The hosts, in order of their numbers."""
        return tuple(self._host(number) for number in range(self.group.hosts_per_slice))

    def _host(self, number: int) -> FakeHost:
        attributes = dict(self.group.host_attributes)
        device = self.group.host.accelerator
        if device is not None and device.kind == "tpu":
            attributes |= {WellKnownAttribute.TPU_NAME: self.name, WellKnownAttribute.TPU_WORKER_ID: str(number)}
        elif device is not None:
            attributes["pool"] = self.name
        attributes |= {GROUP_ATTRIBUTE: self.group.name, SLICE_ATTRIBUTE: self.name}
        return FakeHost(f"{self.name}-w{number}", self.group.host, tuple(sorted(attributes.items())))


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The slices that a local run of a cluster file may start.

    Args:
        groups: The scale groups whose slices can be started.
        max_hosts: Maximum number of running hosts.
        first: The number of initial slices of each group that has any.
        left_out: Scale groups that are not completely started at first, with the reason.
    """

    groups: tuple[ScaleGroup, ...]
    max_hosts: int
    first: Mapping[str, int]
    left_out: tuple[tuple[str, str], ...]


def plan_fleet(groups: Sequence[ScaleGroup], max_hosts: int) -> FleetPlan:
    """Choose the initial slices: `min_slices` of each group, in the file's order, within the maximum number of hosts.

    Args:
        groups: The scale groups of the cluster file.
        max_hosts: Maximum number of running hosts.
    """
    usable, left_out = [], []
    first: dict[str, int] = {}
    free = max_hosts
    for group in groups:
        size = group.hosts_per_slice
        if group.max_slices == 0:
            left_out.append((group.name, "max_slices is 0"))
            continue
        if size > max_hosts:
            left_out.append((group.name, f"a slice has {size} hosts; at most {max_hosts} run here (--max-hosts)"))
            continue
        usable.append(group)
        count = min(group.min_slices, free // size)
        if count:
            first[group.name] = count
        free -= count * size
        if count < group.min_slices:
            left_out.append(
                (group.name, f"{count} of {group.min_slices} slices: at most {max_hosts} hosts run here (--max-hosts)")
            )
        elif not count:
            left_out.append((group.name, f"none until a job asks for it; up to {group.max_slices}"))
    return FleetPlan(tuple(usable), max_hosts, first, tuple(left_out))


def slice_of_host(name: str) -> str:
    """Return the name of a host's slice; empty if it is no host's name."""
    found, _, number = name.rpartition("-w")
    return found if number.isdecimal() else ""
