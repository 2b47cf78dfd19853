"""Constraints on a worker's attributes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from rigging.arguments import as_texts, check_text, check_type
from rigging.errors import InvalidRequest


class ConstraintOp(IntEnum):
    """How to compare an attribute's value. Stored jobs and the wire format use `STORED_NUMBERS` instead of these
    numbers.
    """

    EQ = 0
    NE = 1
    EXISTS = 2
    NOT_EXISTS = 3
    GT = 4
    GE = 5
    LT = 6
    LE = 7
    IN = 8


STORED_NUMBERS: Mapping[ConstraintOp, int] = MappingProxyType(
    {
        ConstraintOp.EQ: 1,
        ConstraintOp.NE: 2,
        ConstraintOp.IN: 3,
        ConstraintOp.EXISTS: 4,
        ConstraintOp.GT: 5,
        ConstraintOp.GE: 6,
        ConstraintOp.LT: 7,
        ConstraintOp.LE: 8,
        ConstraintOp.NOT_EXISTS: 9,
    }
)
"""The operators' numbers on the wire and in the database."""

_BY_STORED_NUMBER = {number: op for op, number in STORED_NUMBERS.items()}


def stored_operator(number: int, what: str) -> ConstraintOp:
    """Return the operator with this stored number. InvalidRequest names `what` and the valid numbers."""
    op = _BY_STORED_NUMBER.get(number)
    if op is None:
        known = ", ".join(f"{number} {op.name}" for number, op in _BY_STORED_NUMBER.items())
        raise InvalidRequest(f"{what} {number} is unknown; known are {known}")
    return op


_SIGNS = {
    ConstraintOp.EQ: "=",
    ConstraintOp.NE: "!=",
    ConstraintOp.IN: "in",
    ConstraintOp.EXISTS: "exists",
    ConstraintOp.NOT_EXISTS: "does not exist",
    ConstraintOp.GT: ">",
    ConstraintOp.GE: ">=",
    ConstraintOp.LT: "<",
    ConstraintOp.LE: "<=",
}
_WITHOUT_VALUE = frozenset({ConstraintOp.EXISTS, ConstraintOp.NOT_EXISTS})
# Attributes that say where a worker is.
PLACE_KEYS = frozenset({"region", "zone"})
# Workers have it whose tasks run as users of their own (`--task-users`).
TASK_USERS_ATTRIBUTE = "iris-task-users"
# How the worker limits tasks: "enforced", "off", or "soft: " and the limits that the kernel does not enforce.
LIMITS_ATTRIBUTE = "iris-limits"
# The worker's name, given by the controller.
WORKER_NAME_ATTRIBUTE = "worker-name"
# The container engine of a worker that runs tasks in images: "podman" or "docker".
CONTAINERS_ATTRIBUTE = "iris-containers"
# Bytes of the disk of a worker that tells anew what is free of it: so much may be free some day.
DISK_SIZE_ATTRIBUTE = "iris-disk-size"
# The address at which other hosts reach the worker's.
HOST_ADDRESS_ATTRIBUTE = "iris-address"
_ORDERED = frozenset({ConstraintOp.GT, ConstraintOp.GE, ConstraintOp.LT, ConstraintOp.LE})


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition on one attribute. A soft constraint is a preference and never excludes a worker."""

    key: str
    op: ConstraintOp
    values: tuple[str, ...] = ()
    soft: bool = False

    @staticmethod
    def create(
        key: str,
        op: ConstraintOp,
        value: object = None,
        *,
        values: Iterable[object] | None = None,
        mode: str | int | None = None,
    ) -> "Constraint":
        """Return a constraint from plain values.

        Args:
            key: The attribute.
            op: The comparison.
            value: Text, a number or a boolean.
            values: Several values, for IN, instead of `value`.
            mode: "required" (0, the default) or "preferred" (1), which makes it soft.

        Raises:
            InvalidRequest: The mode is unknown, or `validate_constraint` refuses the constraint.
        """
        if values is None:
            values = () if value is None else (value,)
        elif value is not None:
            raise InvalidRequest(f"constraint on {key!r}: give value or values, not both")
        made = Constraint(key, op, tuple(map(_as_text, values)), _is_soft(key, mode))
        validate_constraint(made)
        return made

    def evaluate(self, attributes: Mapping[str, str]) -> bool:
        """Return whether a worker's attributes meet the condition. A missing attribute meets NE and NOT_EXISTS."""
        value = attributes.get(self.key)
        if value is None:
            return self.op in (ConstraintOp.NE, ConstraintOp.NOT_EXISTS)
        match self.op:
            case ConstraintOp.NOT_EXISTS:
                return False
            case ConstraintOp.EXISTS:
                return True
            case ConstraintOp.EQ | ConstraintOp.IN:
                return value in self.values
            case ConstraintOp.NE:
                return value not in self.values
            case _:
                return _ordered(self.op, value, self.values[0])

    def __str__(self) -> str:
        if self.op in _WITHOUT_VALUE:
            return f"{self.key} {_SIGNS[self.op]}"
        wanted = f"({', '.join(self.values)})" if self.op is ConstraintOp.IN else ", ".join(self.values)
        return f"{self.key} {_SIGNS[self.op]} {wanted}"


_CONDITION = re.compile(r"\s*([^\s=!<>]+?)\s*(?:(!=|>=|<=|=|>|<)|\s(in|exists)(?:\s|$))(.*)", re.DOTALL)


def parse_constraint(text: str) -> Constraint:
    """Return the constraint of "KEY=VALUE", "KEY!=VALUE", "KEY in A,B", "KEY exists", or "KEY>=NUMBER" (or >, <, <=).

    Raises:
        InvalidRequest: The text has none of these forms.
    """
    found = _CONDITION.fullmatch(text)
    sign = (found[2] or found[3]) if found is not None else ""
    op = next((op for op, known in _SIGNS.items() if known == sign), None)
    if found is None or op is None:
        raise InvalidRequest(f"{text!r} is not a condition; write KEY=VALUE, KEY!=VALUE, 'KEY in A,B' or 'KEY>=NUMBER'")
    rest = found[4].strip()
    values = [word.strip() for word in rest.removeprefix("(").removesuffix(")").split(",")] if sign == "in" else [rest]
    if "" in values and sign != "exists":
        form = " in A,B" if sign == "in" else f"{sign}VALUE"
        raise InvalidRequest(f"{text!r} has an empty value; write {found[1]}{form}")
    constraint = Constraint(found[1], op, tuple(filter(None, values)))
    validate_constraint(constraint)
    return constraint


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_soft(key: str, mode: str | int | None) -> bool:
    match mode.lower() if isinstance(mode, str) else mode:
        case None | 0 | "required" | "hard":
            return False
        case 1 | "preferred" | "soft":
            return True
    raise InvalidRequest(f"constraint on {key!r}: mode must be 'required' or 'preferred', not {mode!r}")


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
    """Return whether a worker's attributes meet all hard constraints."""
    return all(constraint.soft or constraint.evaluate(attributes) for constraint in constraints)


def soft_score(constraints: Iterable[Constraint], attributes: Mapping[str, str]) -> int:
    """Return the number of soft constraints that a worker meets. The scheduler prefers the highest number."""
    return sum(1 for constraint in constraints if constraint.soft and constraint.evaluate(attributes))


def validate_constraint(constraint: Constraint) -> None:
    """Validate a constraint without the cluster's state.

    Raises:
        InvalidRequest: A part has the wrong type, the key is missing, the number of values is wrong, or an order is
            applied to non-numbers.
    """
    check_text(constraint.key, "the key of a constraint")
    check_type(constraint.op, ConstraintOp, f"constraint on {constraint.key!r}: op", "a ConstraintOp")
    as_texts(constraint.values, f"constraint on {constraint.key!r}: values")
    check_type(constraint.values, Sequence, f"constraint on {constraint.key!r}: values", "a tuple of text")
    if not constraint.key:
        raise InvalidRequest("a constraint has an empty key; it must name an attribute of workers")
    count = len(constraint.values)
    if constraint.op in _WITHOUT_VALUE:
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
