"""Pools of identical slices that a cluster may start, up to a maximum."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from iris.domain.resources import Resources

GROUP_ATTRIBUTE: Final = "scale-group"
"""The attribute with the name of a worker's scale group."""


@dataclass(frozen=True, slots=True)
class ScaleGroup:
    """A pool of identical slices.

    Args:
        host: The capacity of one host. hosts_per_slice: Hosts that start and stop together; 1 for single machines.
        min_slices, max_slices: The minimum and maximum number of slices.
        preemptible: Whether the platform may preempt a slice.
        attributes: Attributes other than region, zone and preemptible.
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

    @property
    def host_attributes(self) -> Mapping[str, str]:
        """Return the attributes of the group's hosts, for constraints."""
        place = {"region": self.region, "zone": self.zone}
        found = {key: value for key, value in place.items() if value}
        found["preemptible"] = "true" if self.preemptible else "false"
        device = self.host.accelerator
        if device is not None:
            found |= {"device-type": device.kind, "device-variant": device.variant}
            # Which slice it will be is not known yet, that there will be one is.
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
    left, count = host, 0
    while count < _MOST_ON_A_HOST and need.fits(left):
        left, count = left.sub(need), count + 1
    return count


def offers(groups: tuple[ScaleGroup, ...]) -> Iterator[tuple[str, Resources, Mapping[str, str]]]:
    """Yield the name, and the capacity and attributes of a host, of each group that may have hosts."""
    for group in groups:
        if group.max_slices > 0:
            yield str(group), group.host, group.host_attributes
