"""Whether the tasks of a job are held to their limits: its submitter's choice, and the cluster's. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from iris.domain.job_spec import LIMIT_MODES, MEMORY_WARNING, JobSpec
from rigging.errors import InvalidRequest

ENFORCED, SOFT = LIMIT_MODES
UNSTATED: Final = ("warn", "enforce")
WARN, ENFORCE = UNSTATED


@dataclass(frozen=True, slots=True)
class LimitsPolicy:
    """The cluster's choice.

    Args:
        mode: One of LIMIT_MODES, for jobs that choose none.
        force: Jobs may not choose the other one.
        unstated: One of UNSTATED: what becomes of tasks that use more memory than the default of a submitter who
            named none; "": nothing. Those on TPUs have their hosts for themselves.
    """

    mode: str = ENFORCED
    force: bool = False
    unstated: str = ""

    def applied(self, spec: JobSpec) -> JobSpec:
        """Return the job with the limits that its tasks are held to.

        A share of cpu that was asked for as a quota stays one: that ends nothing.

        Raises:
            InvalidRequest: It chose what the cluster does not allow.
        """
        if spec.limits_mode and spec.limits_mode not in LIMIT_MODES:
            allowed = " or ".join(map(repr, LIMIT_MODES))
            raise InvalidRequest(
                f"job {spec.job_id}: limits_mode is {spec.limits_mode!r}; it must be {allowed}, or empty"
            )
        if self.force and spec.limits_mode not in ("", self.mode):
            raise InvalidRequest(f"job {spec.job_id}: {_REFUSALS[spec.limits_mode]}; limits.force of its file says so")
        if (spec.limits_mode or self.mode) == ENFORCED:
            return self._with_unstated(spec)
        if not spec.enforced:
            return spec
        return replace(spec, enforced="cpu" if "cpu" in spec.enforced.split(",") else "")

    def _with_unstated(self, spec: JobSpec) -> JobSpec:
        words = list(filter(None, spec.enforced.split(",")))
        device = spec.resources.device
        if not self.unstated or "memory" in words or (device is not None and device.kind == "tpu"):
            return spec
        return replace(spec, enforced=",".join([*words, "memory" if self.unstated == ENFORCE else MEMORY_WARNING]))


AS_SAID: Final = LimitsPolicy()
"""That of a cluster whose file says nothing of limits."""

_REFUSALS: Final = {
    SOFT: "it asks for soft limits (--soft-limits), but this cluster ends tasks that exceed what they asked for",
    ENFORCED: "it asks to be held to its limits (--no-soft-limits), but this cluster ends no task for what it uses",
}
