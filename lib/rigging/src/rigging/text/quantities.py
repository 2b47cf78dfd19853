"""Quantities in users' input: sizes, seconds and counts, each checked against the limits of storage and messages."""

import re
from typing import Final

from rigging.errors import InvalidRequest

MAX_BYTES: Final = 2**63 - 1
MIN_ASKED_BYTES: Final = 2**20
"""Minimum amount of memory or disk; less means that the unit was forgotten."""

MAX_SECONDS: Final = 100 * 365 * 86_400.0
MAX_COUNT: Final = 2**31 - 1

_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)(?:i?b)?\s*", re.IGNORECASE | re.ASCII)
_EXPONENTS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SHOWN: Final = 40


def parse_size(size: str | int, what: str = "") -> int:
    """Return a size in bytes. Every unit is a power of 1024, so "1g", "1GB" and "1GiB" are all 2**30.

    Args:
        size: A number of bytes, or a number with the unit k, m, g, t or p.
        what: The parameter's name, for the error.

    Raises:
        InvalidRequest: The text is not a size, is negative, or is 2**63 bytes or more.
    """
    name = f"{what} " if what else ""
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise InvalidRequest(f"{name}{size} is below 0")
        number = float(min(size, 2**64))
        exact = size
    else:
        match = _SIZE.fullmatch(size) if isinstance(size, str) else None
        if match is None:
            shown = repr(size[:_SHOWN] if isinstance(size, str) else size)
            raise InvalidRequest(f"{name}{shown} is not a size; write a number with a unit, e.g. '512MB' or '4g'")
        number = float(match[1]) * 1024.0 ** _EXPONENTS[match[2].lower()]
        exact = round(number) if number < MAX_BYTES else 0
    if number >= MAX_BYTES:
        shown = repr(str(size)[:_SHOWN])
        raise InvalidRequest(f"{name}{shown} is not a size: it must be below 8192p, which is 2**63 bytes")
    return exact


def format_size(size_bytes: int) -> str:
    """Return bytes in the largest binary unit that keeps the number at or above 1: "16 GiB", "1.5 MiB"."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.2f}".rstrip("0").rstrip(".") + f" {unit}"
        value /= 1024
    return f"{value:.2f}".rstrip("0").rstrip(".") + " TiB"


def check_unit(size: str | int, what: str) -> int:
    """Return a requested size in bytes: 0, or at least 1 MB.

    Args:
        size: As in `parse_size`.
        what: The parameter's name, for the error.

    Raises:
        InvalidRequest: The size is less than that. The message suggests a unit.
    """
    found = parse_size(size, what)
    if 0 < found < MIN_ASKED_BYTES:
        text = str(size).strip()
        better = "64MB" if not text.isdigit() or found > 1024 else f"{text}GB" if found <= 64 else f"{text}MB"
        raise InvalidRequest(
            f"{what} {text!r} is {found} bytes, below the minimum of 1MB; write a unit, e.g. '{better}'"
        )
    return found


def check_seconds(seconds: float, what: str, *, zero: bool = False) -> float:
    """Return `seconds` if it is above 0 and at most 100 years.

    Args:
        seconds: The time.
        what: The parameter's name, for the error.
        zero: Whether 0 is also allowed.

    Raises:
        InvalidRequest: The value is out of range.
    """
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    # Written so that NaN is refused too.
    if not is_number or not (seconds >= 0 if zero else seconds > 0) or not seconds <= MAX_SECONDS:
        least = "from 0" if zero else "above 0"
        raise InvalidRequest(f"{what} must be a number of seconds {least}, at most {MAX_SECONDS:.0f}, not {seconds!r}")
    return seconds


def check_count(count: int, what: str, least: int = 0, most: int = MAX_COUNT) -> int:
    """Return `count` if it is a whole number from `least` to `most`.

    Args:
        count: The number.
        what: The parameter's name, for the error.
        least: The smallest allowed value.
        most: The largest allowed value.

    Raises:
        InvalidRequest: The value is out of range.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= most:
        raise InvalidRequest(f"{what} must be a whole number from {least} to {most}, not {count!r}")
    return count
