"""The demand of one task on a worker, and the resources of one attempt."""

from iris.domain.constraints import Constraint
from iris.domain.ids import AttemptId, JobId, WorkerId, user_of
from iris.domain.resources import NOTHING, Resources, weight
from iris.domain.states import PreemptionReason, PriorityBand

PlacementKey = tuple[tuple[Constraint, ...], tuple[str, ...] | None]


class Demand:
    """The resources and constraints of one task. Equal requests share one object and compare by identity.

    Attributes:
        wish: Constraints, and kind and variants of the device, which determine the eligible workers.
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


Kind = tuple[str, Demand]
"""A user, and the resources of each task."""


class Booking:
    """The resources of one live or stopping attempt on its worker.

    Attributes:
        prefilled: Whether it is prefilled without a reported start: then it holds nothing. was_prefilled: Whether it
        ever was; its worker may report its start before the end that made room.
        kind: User and demand. Attempts of one kind may replace each other.
        reserves: Whether its accelerators are for the other jobs of its tree.
    """

    __slots__ = (
        "attempt_id", "band", "found", "has_lent", "is_gang", "job_id", "kind", "notice", "prefilled", "reserves",
        "resources", "stopping", "user", "waits", "was_prefilled", "weight", "worker_id",
    )  # fmt: skip

    def __init__(
        self,
        attempt_id: AttemptId,
        job_id: JobId,
        worker_id: WorkerId,
        resources: Resources,
        is_gang: bool = False,
        weight: float = 0.0,
        kind: Kind | None = None,
        prefilled: bool = False,
        reserves: bool = False,
        band: PriorityBand = PriorityBand.PRODUCTION,
    ) -> None:
        self.prefilled = self.was_prefilled = prefilled
        self.kind = kind
        self.reserves = reserves
        self.band = band
        self.is_gang = is_gang
        self.weight = weight
        self.user = user_of(job_id)
        self.attempt_id = attempt_id
        self.job_id = job_id
        self.worker_id = worker_id
        self.resources = resources
        self.stopping = False
        self.found = False  # see Stopping.found
        self.notice: tuple[PreemptionReason, int] | None = None  # see Stopping.notice
        self.waits = 0  # open waits for children; above 0 the cpu is lent
        self.has_lent = False

    @property
    def cpu_millis(self) -> int:
        """Return the CPUs that the attempt holds now: none while it lends them or has not started."""
        return 0 if self.waits or self.prefilled else self.resources.cpu_millis

    @property
    def held(self) -> Resources:
        """Return the resources that become free when the attempt ends."""
        return NOTHING if self.prefilled else self.resources
