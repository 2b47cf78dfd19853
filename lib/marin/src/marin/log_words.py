"""The executor's own lines in a step's log, for programs that read it. It imports almost nothing."""

from __future__ import annotations

import re
from typing import Final

_FOLLOWS: Final = re.compile(r"=== attempt \d+ follows in (?P<seconds>[0-9.e+]+) s")


def follows_line(attempt: int, delay: float) -> str:
    """Return the last line of an attempt that will be retried.

    Args:
        attempt: The number of the next attempt.
        delay: Seconds until it starts.
    """
    return f"=== attempt {attempt} follows in {delay:g} s"


def seconds_to_next(line: str) -> float | None:
    """Return the seconds until the next attempt, if a log's last line announces one; otherwise None."""
    match = _FOLLOWS.fullmatch(line.strip())
    return None if match is None else float(match["seconds"])
