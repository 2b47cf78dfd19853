"""Checks of submitted jobs, made once for jobs that differ in their names only."""

from collections.abc import Sequence
from typing import Final

from iris.controller.admission.limits_policy import AS_SAID, LimitsPolicy
from iris.controller.admission.validate import validate_fence, validate_place, validate_spec
from iris.domain.job_spec import JobSpec, is_alike
from iris.domain.scale_groups import ScaleGroup
from iris.sched.feasible import WorkerCapacity

_LEAST_FENCE_BEATS: Final = 4


class Admission:
    """Checks jobs. One like the last that was found good is as good: the checks look at nothing else.

    Args:
        heartbeat_interval_s: Of the workers; a fence must leave room for some that are lost.
        scale_groups: Hosts that may be made.
        limits: Whether tasks are held to their limits.
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
        """Check a job by itself; return it with the limits that it is held to here. Raises InvalidRequest."""
        spec = self._limits.applied(spec)
        if self._good is None or not is_alike(spec, self._good):
            validate_spec(spec)
            validate_fence(spec, self._least_fence_ms)
            self._good = spec
        return spec

    def check_place(self, spec: JobSpec, workers: Sequence[WorkerCapacity]) -> None:
        """Check that one of these workers, or a scale group, could ever run a job. Raises InvalidRequest."""
        placed = self._placed
        if placed is None or not is_alike(spec, placed[0]) or workers != placed[1]:
            validate_place(spec, workers, self._scale_groups)
            self._placed = (spec, workers)
