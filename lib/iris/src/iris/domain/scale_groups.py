"""Pools of identical slices that a cluster may start, up to a maximum."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from iris.domain.resources import Resources

GROUP_ATTRIBUTE: Final = "scale-group"
"""The attribute with the name of a worker's scale group."""


class CapacityType(StrEnum):
    """The claim that a slice has on its hosts."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"  # the platform may preempt it
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class GcpTemplate:
    """How Google makes a slice. Empty or 0 stands for Google's default.

    Args:
        project_id: The project; empty for the platform's.
        is_tpu: A TPU node; else a virtual machine of Compute Engine.
        machine_type, image, disk_size_gb, disk_type: Of a virtual machine.
        runtime_version: The image of TPU hosts.
        reservation: The name of the reservation of a reserved slice.
    """

    project_id: str = ""
    is_tpu: bool = False
    machine_type: str = ""
    image: str = ""
    disk_size_gb: int = 0
    disk_type: str = ""
    runtime_version: str = ""
    network: str = ""
    subnetwork: str = ""
    service_account: str = ""
    reservation: str = ""
    tags: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ManualTemplate:
    """Hosts that exist, reached by ssh: `hosts_per_slice` of them in turn are one slice.

    Args:
        hosts: Addresses, `host` or `host:port`.
        ssh_user, ssh_key_file: Empty for the cluster's `defaults.ssh`.
    """

    hosts: tuple[str, ...]
    ssh_user: str = ""
    ssh_key_file: str = ""


@dataclass(frozen=True, slots=True)
class ScaleGroup:
    """A pool of identical slices in one zone.

    Args:
        host: The capacity of one host. hosts_per_slice: Hosts that start and stop together; 1 for single machines.
        min_slices, max_slices: The minimum and maximum number of slices.
        preemptible: Whether the platform may preempt a slice.
        attributes: Attributes other than region, zone and preemptible.
        priority: Groups with a lower number are used first.
        buffer_slices: The number of unused slices to keep beyond what jobs need.
        capacity_type: The claim on the hosts.
        quota_pool: Groups of one pool share a quota; empty for none.
        allocation_tier: Where the pool's quota is short, groups of this tier and higher ones wait.
        hourly_price: The price of a slice for an hour; 0 if unknown.
        template: How to make a slice; None where only this machine's processes can.
        environment: Variables of its workers.
    """

    name: str
    host: Resources
    hosts_per_slice: int = 1
    min_slices: int = 0
    max_slices: int = 1
    region: str = ""
    zone: str = ""
    preemptible: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    priority: int = 100
    buffer_slices: int = 0
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    quota_pool: str = ""
    allocation_tier: int = 0
    hourly_price: float = 0.0
    template: GcpTemplate | ManualTemplate | None = None
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def host_attributes(self) -> Mapping[str, str]:
        """Return the attributes of the group's hosts, for constraints."""
        place = {"region": self.region, "zone": self.zone}
        found = {key: value for key, value in place.items() if value}
        found["preemptible"] = "true" if self.preemptible else "false"
        # Which slice it will be is not known yet, that there will be one is.
        found |= {GROUP_ATTRIBUTE: self.name, "slice": self.name}
        device = self.host.accelerator
        if device is not None:
            found |= {"device-type": device.kind, "device-variant": device.variant}
            found["tpu-name" if device.kind == "tpu" else "pool"] = self.name
        return found | dict(self.attributes)

    def tasks_per_slice(self, need: Resources) -> int:
        """Return how many tasks with these resources fit on an empty slice."""
        return tasks_on(self.host, need) * self.hosts_per_slice

    def __str__(self) -> str:
        return f"scale group {self.name}"


_MOST_ON_A_HOST = 1024


def tasks_on(host: Resources, need: Resources) -> int:
    """Return how many tasks with these resources fit on an empty host, at most 1024."""
    if not need.fits(host):
        return 0
    count = _MOST_ON_A_HOST
    if need.cpu_millis:
        count = min(count, host.cpu_millis // need.cpu_millis)
    if need.memory_bytes:
        count = min(count, host.memory_bytes // need.memory_bytes)
    if need.disk_bytes:
        count = min(count, host.disk_bytes // need.disk_bytes)
    device, have = need.accelerator, host.accelerator
    if device is not None and have is not None and device.count:
        count = min(count, have.count // device.count)
    return count


def offers(groups: tuple[ScaleGroup, ...]) -> Iterator[tuple[str, Resources, Mapping[str, str]]]:
    """Yield the name, and the capacity and attributes of a host, of each group that may have hosts."""
    for group in groups:
        if group.max_slices > 0:
            yield str(group), group.host, group.host_attributes
