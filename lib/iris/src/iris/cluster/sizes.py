"""Sizes as people write them: "1GB", "512MiB", 2048."""

import re
from typing import Final

from rigging.errors import InvalidRequest

_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)(?:i?b)?\s*", re.IGNORECASE)


def parse_size(size: str | int, what: str = "size") -> int:
    """Bytes of a size; every unit is a power of 1024, so "1g", "1GB" and "1GiB" are all 2**30.

    Args:
        size: A number of bytes, or a number with a unit of k, m, g, t or p.
        what: Name of the parameter, for the error.

    Raises:
        InvalidRequest: Not a size, or below 0.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise InvalidRequest(f"{what} {size} is below 0")
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise InvalidRequest(f"{what} {size!r} is not a size; write a number with a unit, e.g. '512MB' or '4g'")
    return round(float(match[1]) * _UNITS[match[2].lower()])


def format_size(size_bytes: int) -> str:
    """A size for people, e.g. "1.5 GiB"."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def short_size(size_bytes: int) -> str:
    """A size in whole units as people say it, e.g. "48 KB" (units are powers of 1024)."""
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}" if size_bytes < 10 * size else f"{size_bytes / size:.0f} {unit}"
    return f"{size_bytes} bytes"
