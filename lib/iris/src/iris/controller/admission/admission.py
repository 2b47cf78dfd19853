"""Validates submitted jobs, once for jobs that differ only in their names."""

from collections.abc import Sequence
from typing import Final

from iris.controller.admission.limits_policy import AS_SAID, LimitsPolicy
from iris.controller.admission.validate import validate_fence, validate_place, validate_spec
from iris.domain.job_spec import JobSpec, is_alike
from iris.domain.scale_groups import ScaleGroup
from iris.sched.feasible import WorkerCapacity, unholdable_reason
from rigging.errors import InvalidRequest

_LEAST_FENCE_BEATS: Final = 4


class Admission:
    """Validates jobs. Skips the checks for a job that equals the last accepted one except for its name.

    Args:
        heartbeat_interval_s: The workers' heartbeat interval. A fence must be longer than several intervals.
        scale_groups: Hosts that the cluster may start.
        limits: The policy on tasks' limits.
    """

    def __init__(
        self,
        heartbeat_interval_s: float,
        scale_groups: tuple[ScaleGroup, ...] = (),
        limits: LimitsPolicy = AS_SAID,
    ) -> None:
        self._limits = limits
        self._least_fence_ms = round(_LEAST_FENCE_BEATS * heartbeat_interval_s * 1000)
        self._scale_groups = scale_groups
        self._good: JobSpec | None = None
        self._placed: tuple[JobSpec, Sequence[WorkerCapacity]] | None = None

    def check(self, spec: JobSpec) -> JobSpec:
        """Validate a job on its own, and return it with its enforced limits. Raise InvalidRequest."""
        spec = self._limits.applied(spec)
        if self._good is None or not is_alike(spec, self._good):
            validate_spec(spec)
            validate_fence(spec, self._least_fence_ms)
            self._good = spec
        return spec

    def check_place(self, spec: JobSpec, workers: Sequence[WorkerCapacity]) -> None:
        """Check that a worker or scale group could ever run a job. Raise InvalidRequest."""
        placed = self._placed
        if placed is None or not is_alike(spec, placed[0]) or workers != placed[1]:
            validate_place(spec, workers, self._scale_groups)
            self._placed = (spec, workers)

    def check_reservation(self, spec: JobSpec, beside: int, workers: Sequence[WorkerCapacity]) -> None:
        """Check that the cluster could ever hold a whole reservation. Raise InvalidRequest.

        Args:
            spec: A job that reserves.
            beside: Tasks of live jobs that hold other parts of the reservation.
            workers: As in `check_place`.
        """
        reason = unholdable_reason(spec, beside, workers, self._scale_groups)
        if reason is not None:
            raise InvalidRequest(f"job {spec.job_id} can never hold its reservation: {reason}")
