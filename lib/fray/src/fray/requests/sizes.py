"""Sizes of memory and disk in text form."""

from functools import lru_cache

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
