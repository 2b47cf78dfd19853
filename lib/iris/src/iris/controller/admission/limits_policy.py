"""Whether limits of a job's tasks are enforced: its submitter's choice and the cluster's. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from iris.domain.job_spec import LIMIT_MODES, MEMORY_WARNING, JobSpec
from rigging.errors import InvalidRequest

ENFORCED, SOFT = LIMIT_MODES
UNSTATED: Final = ("warn", "enforce")
WARN, ENFORCE = UNSTATED


@dataclass(frozen=True, slots=True)
class LimitsPolicy:
    """The cluster's policy.

    Args:
        mode: One of LIMIT_MODES, for jobs without a choice.
        force: Whether jobs must not choose the other mode.
        unstated: One of UNSTATED: what happens to tasks that exceed the default memory if their submitter stated none;
            "" for nothing. Tasks on TPUs have whole hosts.
    """

    mode: str = ENFORCED
    force: bool = False
    unstated: str = ""

    def applied(self, spec: JobSpec) -> JobSpec:
        """Return the job with the enforced limits of its tasks.

        An explicit CPU quota is always kept, because it ends nothing.

        Raises:
            InvalidRequest: It chose a mode that the cluster does not allow.
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
"""The policy of a cluster whose file does not mention limits."""

_REFUSALS: Final = {
    SOFT: "it asks for soft limits (--soft-limits), but this cluster ends tasks that exceed what they asked for",
    ENFORCED: "it asks to be held to its limits (--no-soft-limits), but this cluster ends no task for what it uses",
}
