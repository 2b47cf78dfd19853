"""Whether a task that failed is tried again: a total for its whole life, or so many failures in a span of time."""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

MAX_DELAY_MS: Final = 300_000


def recent_failures(times: Sequence[int], now_ms: int, window_ms: int, most: int) -> tuple[int, ...]:
    """The failures that count when one happens now, this one last.

    Args:
        times: When the ones before were, oldest first (Unix ms).
        now_ms: Unix ms.
        window_ms: Failures older than this do not count.
        most: No more than so many, the latest, can make a difference.
    """
    kept = [at_ms for at_ms in times if now_ms - window_ms < at_ms <= now_ms]
    return (*kept, now_ms)[-most:]


def may_retry(recent: Sequence[int], failures: int, window_ms: int, max_retries: int) -> bool:
    """Whether another attempt is within the budget.

    Args:
        recent: As of `recent_failures`; looked at when there is a window.
        failures: Of the task's whole life, this one included.
        window_ms: 0: the budget is a total.
        max_retries: The budget.
    """
    return (len(recent) if window_ms else failures) <= max_retries


def retry_delay_ms(base_ms: int, failures: int, name: str) -> int:
    """Return how long a task waits for its retry after a failure: exponential, with a jitter of a quarter.

    Args:
        base_ms: Before the first retry; 0: none waits.
        failures: Those that count, this one included.
        name: The attempt that failed: those of many tasks are spread, each always in the same way.
    """
    full: int = min(base_ms << min(failures - 1, 30), MAX_DELAY_MS)
    return min(round(full * (0.75 + crc32(name.encode()) / 2**33)), MAX_DELAY_MS)
