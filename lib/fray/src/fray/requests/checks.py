"""Argument checks and sizes in text. Each error names the argument, the value and the allowed values."""

import math
import os
from collections.abc import Mapping
from functools import lru_cache
from numbers import Integral, Real

from rigging.errors import InvalidRequest
from rigging.text import quantities


def parse_size(text: str) -> int:
    """Return a size in bytes. Every unit is a power of 1024, so "4g" = "4GB" = "4GiB" = 4 * 2**30.

    Raises:
        InvalidRequest: The text is not a number with an optional unit (b, k, m, g, t, p; any case), or is less than a
            byte, or 2**63 bytes or more.
    """
    if not isinstance(text, str):
        raise InvalidRequest(f"{text!r} is not a size; write a number and a unit as text, e.g. '512m', '4g', '16GiB'")
    return _parse(text)


@lru_cache(maxsize=256)  # asked of each job again, and few differ
def _parse(text: str) -> int:
    size = quantities.parse_size(text)
    if size < 1:
        raise InvalidRequest(f"{text!r} is not a size: it must be at least one byte")
    return size


__all__ = ["check_amount", "check_count", "check_list", "check_name", "check_variables", "check_word"]


def check_name(kind: str, name: object) -> None:
    """Refuse an invalid name of a job or an actor."""
    if not isinstance(name, str):
        raise InvalidRequest(f"{kind} name {name!r}: must be text, not {type(name).__name__}")
    if not name.strip() or "/" in name or not name.isprintable():
        raise InvalidRequest(f"{kind} name {name!r}: must not be empty and must not contain '/' or control characters")


def check_count(what: str, count: object, least: int = 1) -> None:
    """Refuse anything but a whole number of at least `least`.

    Args:
        what: The start of the message.
        count: The given value.
        least: The smallest allowed value.
    """
    wanted = "0 or more" if least == 0 else f"at least {least}"
    if isinstance(count, bool) or not isinstance(count, Integral):
        raise InvalidRequest(f"{what} must be a whole number, {wanted}, not {count!r}")
    if int(count) < least:
        raise InvalidRequest(f"{what} must be {wanted}, not {count!r}")


def check_amount(what: str, amount: object) -> None:
    """Refuse anything but a finite number above 0."""
    if isinstance(amount, bool) or not isinstance(amount, Real) or not 0 < float(amount) < math.inf:
        raise InvalidRequest(f"{what} must be above 0, a number, not {amount!r}")


def check_list(what: str, items: object, example: str = "") -> None:
    """Refuse a single string in place of a list of strings, which would be split into letters.

    Args:
        what: The start of the message.
        items: The given value.
        example: An example of the list, for the message.
    """
    if isinstance(items, (str, bytes)):
        raise InvalidRequest(f"{what} must be a list{example}, not the text {items!r}; write [{items!r}]")


def check_word(what: str, word: object) -> None:
    """Refuse text that cannot be a program's argument."""
    if not isinstance(word, str):
        raise InvalidRequest(f"{what} must be text, not {word!r} ({type(word).__name__})")
    if not _can_be_passed(word):
        raise InvalidRequest(f"{what} must be text without NUL and halves of surrogate pairs, not {word!r}")


def check_variables(owner: str, variables: Mapping[str, str]) -> None:
    """Refuse invalid environment variables. Values are not shown, because they are often credentials."""
    for name, value in variables.items():
        if not isinstance(name, str) or not name or "=" in name or not _can_be_passed(name):
            raise InvalidRequest(f"{owner}: env_vars has the name {name!r}; a name is text without '=' and NUL")
        if not isinstance(value, str):
            raise InvalidRequest(f"{owner}: env_vars[{name!r}] must be text, not {type(value).__name__}")
        if not _can_be_passed(value):
            raise InvalidRequest(f"{owner}: env_vars[{name!r}] must be text without NUL and halves of surrogate pairs")


def _can_be_passed(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return "\0" not in text
