"""Rate limit of a task's output, with a burst, to protect other tasks of the host.

Unread output stays in the task's pipe, and the task blocks on its writes: nothing is lost. Without a limit, a task that
writes 80 MB/s costs a core of guardian and worker, and other tasks start three times slower (docs/performance.md,
"Limits and usage of tasks").
"""

from typing import Final

BURST_BYTES: Final = 64 << 20
BYTES_PER_SECOND: Final = 24 << 20
_TURN_S: Final = 0.05
"""Minimum length of a pause, because a timer for each read would cost more than the read."""


class OutputPace:
    """Computes pauses between reads; both streams of one task share it.

    Args:
        burst_bytes: Number of bytes to read without a pause after a quiet period.
        bytes_per_s: The rate afterwards.
    """

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, burst_bytes: int = BURST_BYTES, bytes_per_s: int = BYTES_PER_SECOND) -> None:
        self._burst = burst_bytes
        self._rate = bytes_per_s
        self._left = float(burst_bytes)
        self._at = 0.0

    def pause_after(self, count: int, now: float) -> float:
        """Return the seconds to wait before the next read; 0 for none.

        Args:
            count: Bytes just read.
            now: Monotonic time in seconds.
        """
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - count
        self._at = now
        return 0.0 if self._left > 0 else _TURN_S - self._left / self._rate
