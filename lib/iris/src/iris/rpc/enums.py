"""Numbers of the wire as members of the domain's enums."""

from enum import IntEnum
from typing import TypeVar

from rigging.errors import InvalidRequest

_Number = TypeVar("_Number", bound=IntEnum)


def number(kind: type[_Number], value: int, what: str) -> _Number:
    """The member of `kind` with this number; InvalidRequest names `what` and the numbers there are.

    Args:
        kind: The enumeration.
        value: The number.
        what: Its name in the error.
    """
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f"{member.value} {member.name}" for member in kind)
        raise InvalidRequest(f"{what} {value} is unknown; known are {known}") from None
