"""Conditions on a worker's attributes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from rigging.arguments import as_texts, check_text, check_type
from rigging.errors import InvalidRequest


class ConstraintOp(IntEnum):
    """Comparison of an attribute's value; the numbers are those of the wire."""

    EQ = 1
    NE = 2
    IN = 3
    EXISTS = 4
    GT = 5
    GE = 6
    LT = 7
    LE = 8


_SIGNS = {
    ConstraintOp.EQ: "=",
    ConstraintOp.NE: "!=",
    ConstraintOp.IN: "in",
    ConstraintOp.EXISTS: "exists",
    ConstraintOp.GT: ">",
    ConstraintOp.GE: ">=",
    ConstraintOp.LT: "<",
    ConstraintOp.LE: "<=",
}
# Attributes that say where a worker is.
PLACE_KEYS = frozenset({"region", "zone"})
# Workers have it whose hosts end exclusive attempts by themselves; those of earlier releases do not.
FENCE_ATTRIBUTE = "iris-fence"
# Workers have it that take attempts ahead of their turn: see `iris.sched.ahead`.
AHEAD_ATTRIBUTE = "iris-ahead"
# Bytes of the disk of a worker that tells anew what is free of it: so much may be free some day.
DISK_SIZE_ATTRIBUTE = "iris-disk-size"
_ORDERED = frozenset({ConstraintOp.GT, ConstraintOp.GE, ConstraintOp.LT, ConstraintOp.LE})


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition on one attribute; a soft one is a preference and never keeps a task from a worker."""

    key: str
    op: ConstraintOp
    values: tuple[str, ...] = ()
    soft: bool = False

    def evaluate(self, attributes: Mapping[str, str]) -> bool:
        """True if a worker with these attributes meets the condition; a missing attribute meets only NE."""
        value = attributes.get(self.key)
        if value is None:
            return self.op is ConstraintOp.NE
        match self.op:
            case ConstraintOp.EXISTS:
                return True
            case ConstraintOp.EQ | ConstraintOp.IN:
                return value in self.values
            case ConstraintOp.NE:
                return value not in self.values
            case _:
                return _ordered(self.op, value, self.values[0])

    def __str__(self) -> str:
        if self.op is ConstraintOp.EXISTS:
            return f"{self.key} exists"
        wanted = f"({', '.join(self.values)})" if self.op is ConstraintOp.IN else ", ".join(self.values)
        return f"{self.key} {_SIGNS[self.op]} {wanted}"


def _ordered(op: ConstraintOp, value: str, wanted: str) -> bool:
    # Fails closed: what is not a number is neither above nor below anything.
    try:
        left, right = float(value), float(wanted)
    except ValueError:
        return False
    if op is ConstraintOp.GT:
        return left > right
    if op is ConstraintOp.GE:
        return left >= right
    if op is ConstraintOp.LT:
        return left < right
    return left <= right


def evaluate(constraints: Iterable[Constraint], attributes: Mapping[str, str]) -> bool:
    """True if all hard constraints hold for a worker with these attributes."""
    return all(constraint.soft or constraint.evaluate(attributes) for constraint in constraints)


def soft_score(constraints: Iterable[Constraint], attributes: Mapping[str, str]) -> int:
    """Number of of the soft constraints hold: among workers that fit, the highest is preferred."""
    return sum(1 for constraint in constraints if constraint.soft and constraint.evaluate(attributes))


def validate_constraint(constraint: Constraint) -> None:
    """Check a constraint by itself.

    Raises:
        InvalidRequest: Parts of another type, no key, the wrong number of values for its operator, or an order asked of
            what is no number.
    """
    check_text(constraint.key, "the key of a constraint")
    check_type(constraint.op, ConstraintOp, f"constraint on {constraint.key!r}: op", "a ConstraintOp")
    as_texts(constraint.values, f"constraint on {constraint.key!r}: values")
    check_type(constraint.values, Sequence, f"constraint on {constraint.key!r}: values", "a tuple of text")
    if not constraint.key:
        raise InvalidRequest("a constraint has an empty key; it must name an attribute of workers")
    count = len(constraint.values)
    if constraint.op is ConstraintOp.EXISTS:
        expected, good = "no value", count == 0
    elif constraint.op is ConstraintOp.IN:
        expected, good = "one value or more", count >= 1
    else:
        expected, good = "one value", count == 1
    if not good:
        raise InvalidRequest(f"constraint {constraint} has {count} values; {constraint.op.name} takes {expected}")
    if constraint.op in _ORDERED:
        try:
            float(constraint.values[0])
        except ValueError:
            raise InvalidRequest(f"constraint {constraint}: {constraint.values[0]!r} is not a number") from None
