"""One task's request to a worker."""

from iris.domain.constraints import Constraint
from iris.domain.resources import Resources, weight

PlacementKey = tuple[tuple[Constraint, ...], tuple[str, ...] | None]


class Demand:
    """Resources and constraints of one task. Equal requests share one object, so it compares by identity.

    Attributes:
        wish: Constraints, and kind and variants of the device: what decides which workers come into question at all.
        weight: See `iris.domain.resources.weight`.
    """

    __slots__ = ("__weakref__", "constraints", "placement_key", "resources", "weight")

    def __init__(self, resources: Resources, constraints: tuple[Constraint, ...]) -> None:
        self.resources = resources
        self.constraints = constraints
        self.weight = weight(resources)
        device = resources.accelerator
        names = None if device is None else (device.kind, device.variant, *device.alternatives)
        self.placement_key: PlacementKey = (constraints, names)
