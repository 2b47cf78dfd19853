"""The names of the executor's files in a step's output path, and the log line between two attempts."""

from __future__ import annotations

import re
from typing import Final

STATUS_FILE: Final = ".executor_status"
INFO_FILE: Final = ".executor_info"
ARTIFACT_FILE: Final = ".artifact"
ARTIFACT_DIGEST_FILE: Final = ARTIFACT_FILE + ".sha256"
LOG_FILE: Final = ".log"
ERROR_FILE: Final = ".error"
TARGET_CONFIG_FILE: Final = ".target_config"
METRICS_FILE: Final = ".executor_metrics"
LINK_NAME: Final = "link"
LINK_URL: Final = "url"
"""A line of the metrics with these names links a page elsewhere."""

#: The earlier output is at the output path with this suffix while `--force` makes it again.
ASIDE_SUFFIX: Final = ".forced"

WAITING_FILE: Final = ".waiting_for"

LOCK_SUFFIX: Final = ".lock"
LOCK_FILE: Final = STATUS_FILE + LOCK_SUFFIX

_RECORDS: Final = frozenset(
    {INFO_FILE, LOG_FILE, ERROR_FILE, WAITING_FILE, TARGET_CONFIG_FILE, ARTIFACT_DIGEST_FILE, METRICS_FILE}
)


def is_record(name: str) -> bool:
    """Return whether a file is the executor's record of an output. `.artifact`, the return value, is part of the
    output."""
    file = name.rpartition("/")[2]
    return file in _RECORDS or file.startswith(STATUS_FILE)


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
