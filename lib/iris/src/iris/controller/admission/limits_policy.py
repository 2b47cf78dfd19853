"""Decides whether limits of a job's tasks are enforced, from the submitter's choice and the cluster's policy. Pure."""

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
        force: Whether jobs must use `mode`.
        unstated: What happens if a task without a memory request exceeds the default memory (one of UNSTATED); "" for
            nothing. Does not apply to tasks on TPUs, which have whole hosts.
    """

    mode: str = ENFORCED
    force: bool = False
    unstated: str = ""

    def applied(self, spec: JobSpec) -> JobSpec:
        """Return the job with the enforced limits of its tasks.

        An explicit CPU quota always applies, because it ends no attempt.

        Raises:
            InvalidRequest: The job chose a mode that the cluster does not allow.
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
"""The default policy."""

_REFUSALS: Final = {
    SOFT: "it asks for soft limits (--soft-limits), but this cluster kills tasks that exceed their request",
    ENFORCED: "it asks for enforced limits (--no-soft-limits), but this cluster kills no task for its usage",
}
