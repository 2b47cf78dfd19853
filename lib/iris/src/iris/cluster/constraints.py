"""Constraints on the attributes of a job's workers, with helpers for the common ones."""

from collections.abc import Sequence
from enum import StrEnum

from iris.domain.constraints import WORKER_NAME_ATTRIBUTE, Constraint, ConstraintOp, validate_constraint
from rigging.errors import InvalidRequest

__all__ = [
    "Constraint",
    "ConstraintOp",
    "WellKnownAttribute",
    "device_variant_constraint",
    "merge_constraints",
    "preemptible_constraint",
    "region_constraint",
    "validate_constraint",
    "worker_constraint",
    "zone_constraint",
]


class WellKnownAttribute(StrEnum):
    """The standard names of workers' attributes."""

    DEVICE_TYPE = "device-type"
    DEVICE_VARIANT = "device-variant"
    PREEMPTIBLE = "preemptible"
    REGION = "region"
    ZONE = "zone"
    TPU_NAME = "tpu-name"
    TPU_WORKER_ID = "tpu-worker-id"
    POOL = "pool"
    WORKER_NAME = WORKER_NAME_ATTRIBUTE


def preemptible_constraint(preemptible: bool = True, soft: bool = False) -> Constraint:
    """Return a constraint to workers that may (True) or may not (False) be preempted. With `soft` it is a
    preference.
    """
    return Constraint(WellKnownAttribute.PREEMPTIBLE, ConstraintOp.EQ, ("true" if preemptible else "false",), soft)


def merge_constraints(parent: Sequence[Constraint], child: Sequence[Constraint]) -> list[Constraint]:
    """Return the constraints of a child job: its own, and inherited ones of its parent.

    For a well-known attribute the child's constraint replaces the parent's. For other attributes both apply.
    """
    own = {constraint.key for constraint in child} & set(WellKnownAttribute)
    kept = [constraint for constraint in parent if constraint.key not in own]
    return list(dict.fromkeys([*kept, *child]))


def zone_constraint(zone: str) -> Constraint:
    """Return a constraint to workers in this zone."""
    return _one_of(WellKnownAttribute.ZONE, [zone])


def region_constraint(regions: str | Sequence[str]) -> Constraint:
    """Return a constraint to workers in this region, or in one of these regions."""
    return _one_of(WellKnownAttribute.REGION, [regions] if isinstance(regions, str) else regions)


def device_variant_constraint(variants: str | Sequence[str]) -> Constraint:
    """Return a constraint to workers with this accelerator variant, or one of these variants."""
    return _one_of(WellKnownAttribute.DEVICE_VARIANT, [variants] if isinstance(variants, str) else variants)


def worker_constraint(names: str | Sequence[str]) -> Constraint:
    """Return a constraint to the worker with this name, or with one of these names."""
    return _one_of(WellKnownAttribute.WORKER_NAME, [names] if isinstance(names, str) else names)


def _one_of(attribute: WellKnownAttribute, values: Sequence[str]) -> Constraint:
    if not values or not all(values):
        raise InvalidRequest(f"a constraint on {attribute.value} must name at least one value, and none may be empty")
    operator = ConstraintOp.EQ if len(values) == 1 else ConstraintOp.IN
    return Constraint(attribute, operator, tuple(values))
