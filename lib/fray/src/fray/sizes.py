"""Sizes of memory and disk as people write them."""

import re
from functools import lru_cache

from rigging.errors import InvalidRequest

_SIZE = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgtp]?)(?:i?b)?\s*", re.IGNORECASE)
_EXPONENT = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}

_TOO_LARGE = 2.0**63


def parse_size(text: str) -> int:
    """Return the number of bytes `text` means; every unit is a power of 1024, so "4g" = "4GB" = "4GiB" = 4 * 2**30.

    Raises:
        InvalidRequest: Not a number with an optional unit (b, k, m, g, t, p; upper or lower case), less than a byte, or
            2**63 bytes and more.
    """
    if not isinstance(text, str):
        raise InvalidRequest(_not_a_size(text))
    return _parse(text)


@lru_cache(maxsize=256)  # asked of each job again, and few differ
def _parse(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidRequest(_not_a_size(text))
    number = float(match["number"]) * 1024 ** _EXPONENT[match["unit"].lower()]
    if number >= _TOO_LARGE:
        raise InvalidRequest(f"{text[:40]!r} is not a size: it must be below 8192p, which is 2**63 bytes")
    size = int(number)
    if size < 1:
        raise InvalidRequest(f"{text!r} is not a size: it must be at least one byte")
    return size


def _not_a_size(given: object) -> str:
    return f"{given!r} is not a size; write a number and a unit as text, e.g. '512m', '4g', '16GiB'"
