"""Implicit preferences and constraints of jobs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from iris.domain.constraints import CONTAINERS_ATTRIBUTE, Constraint, ConstraintOp
from iris.domain.ids import parent_of
from iris.domain.job_spec import JobSpec
from iris.domain.runtime import NO_IMAGE

_PREEMPTIBLE: Final = "preemptible"
OFF_PREEMPTIBLE: Final = Constraint(_PREEMPTIBLE, ConstraintOp.NE, ("true",), soft=True)
SMALL_CPU_MILLIS: Final = 1000
_CONTAINERS: Final = Constraint(CONTAINERS_ATTRIBUTE, ConstraintOp.EXISTS)


def with_preferences(spec: JobSpec, offers: Iterable[Mapping[str, str]]) -> JobSpec:
    """Make a small root job prefer hosts that are not preemptible, if the cluster has both kinds.

    A small root job is usually the parent of a tree of jobs (an executor, a coordinator), which ends with it if its
    host is lost. It needs so little that non-preemptible hosts have room.

    Args:
        spec: The requested job. A job with its own constraint on preemptible hosts is unchanged.
        offers: The attributes of the cluster's hosts.
    """
    is_small = spec.resources.cpu_millis <= SMALL_CPU_MILLIS and spec.resources.accelerator is None
    if not is_small or spec.replicas != 1 or parent_of(spec.job_id) is not None:
        return spec
    if any(constraint.key == _PREEMPTIBLE for constraint in spec.constraints):
        return spec
    kinds = {attributes.get(_PREEMPTIBLE) == "true" for attributes in offers}
    return replace(spec, constraints=(*spec.constraints, OFF_PREEMPTIBLE)) if len(kinds) > 1 else spec


def with_image(spec: JobSpec, default: str) -> JobSpec:
    """Give a job the cluster's image if it names none, and restrict jobs with an image to workers that run containers.

    Args:
        spec: The requested job.
        default: The cluster's image; empty for none.
    """
    image = spec.runtime.image or default
    image = "" if image == NO_IMAGE else image
    if image != spec.runtime.image:
        spec = replace(spec, runtime=replace(spec.runtime, image=image))
    if not image or _CONTAINERS in spec.constraints:
        return spec
    return replace(spec, constraints=(*spec.constraints, _CONTAINERS))


def preference_text(constraints: Iterable[Constraint]) -> str:
    """Return a note about this preference for a pending task's reason; empty without it."""
    if OFF_PREEMPTIBLE not in constraints:
        return ""
    return "; hosts that are not preemptible are preferred, because child jobs may depend on this small job"
