"""Whether the tasks of a job are held to their limits: its submitter's choice, and the cluster's. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from iris.domain.job_spec import LIMIT_MODES, JobSpec
from rigging.errors import InvalidRequest

ENFORCED, SOFT = LIMIT_MODES


@dataclass(frozen=True, slots=True)
class LimitsPolicy:
    """The cluster's choice.

    Args:
        mode: One of LIMIT_MODES, for jobs that choose none. Clients of earlier releases never say that they chose.
        force: Jobs may not choose the other one.
    """

    mode: str = ENFORCED
    force: bool = False

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
        if (spec.limits_mode or self.mode) == ENFORCED or not spec.enforced:
            return spec
        return replace(spec, enforced="cpu" if "cpu" in spec.enforced.split(",") else "")


AS_SAID: Final = LimitsPolicy()
"""That of a cluster whose file says nothing of limits."""

_REFUSALS: Final = {
    SOFT: "it asks for soft limits (--soft-limits), but this cluster ends tasks that exceed what they asked for",
    ENFORCED: "it asks to be held to its limits (--no-soft-limits), but this cluster ends no task for what it uses",
}
