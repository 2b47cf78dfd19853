"""Decides whether a failed task is retried: within a total budget, or within a number of failures per time window."""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

MAX_DELAY_MS: Final = 300_000


def recent_failures(times: Sequence[int], now_ms: int, window_ms: int, most: int) -> tuple[int, ...]:
    """Return the times of the failures that count, ending with a failure now.

    Args:
        times: The times of earlier failures, oldest first (Unix ms).
        now_ms: Unix ms.
        window_ms: Failures older than this do not count.
        most: Maximum number of failures to return, latest first.
    """
    kept = [at_ms for at_ms in times if now_ms - window_ms < at_ms <= now_ms]
    return (*kept, now_ms)[-most:]


def may_retry(recent: Sequence[int], failures: int, window_ms: int, max_retries: int) -> bool:
    """Return whether another attempt is within the budget.

    Args:
        recent: The result of `recent_failures`; used if there is a window.
        failures: The task's total failures, including this one.
        window_ms: 0 for a total budget.
        max_retries: The budget.
    """
    return (len(recent) if window_ms else failures) <= max_retries


def retry_delay_ms(base_ms: int, failures: int, name: str) -> int:
    """Return how long a task waits for its retry after a failure: exponential, with a jitter of a quarter.

    Args:
        base_ms: Delay before the first retry; 0 for none.
        failures: The number of failures that count, including this one.
        name: The failed attempt, which determines the jitter. The jitter spreads the retries of many tasks.
    """
    full: int = min(base_ms << min(failures - 1, 30), MAX_DELAY_MS)
    return min(round(full * (0.75 + crc32(name.encode()) / 2**33)), MAX_DELAY_MS)
