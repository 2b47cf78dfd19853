"""The executor's own lines in the log of a step, for those who read it. Imports next to nothing."""

from __future__ import annotations

import re
from typing import Final

_FOLLOWS: Final = re.compile(r"=== attempt \d+ follows in (?P<seconds>[0-9.e+]+) s")


def follows_line(attempt: int, delay: float) -> str:
    """Return the line at the end of an attempt that another one will follow.

    Args:
        attempt: The number of the next one.
        delay: Seconds until it begins.
    """
    return f"=== attempt {attempt} follows in {delay:g} s"


def seconds_to_next(line: str) -> float | None:
    """Return the seconds until another attempt begins, if a log's last line says that one will; None otherwise."""
    match = _FOLLOWS.fullmatch(line.strip())
    return None if match is None else float(match["seconds"])
