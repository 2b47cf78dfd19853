"""Rate limit of a task's output: a burst at once, then a bounded rate, which protects other tasks of the host.

Output that is not read stays in the task's pipe, and the task blocks on writing: nothing is lost. Without a limit, a
task that only writes took a core of guardian and worker for 80 MB/s, and its neighbours' starts took three times as
long (docs/performance.md, "Limits and usage of tasks").
"""

from typing import Final

BURST_BYTES: Final = 64 << 20
BYTES_PER_SECOND: Final = 24 << 20
_TURN_S: Final = 0.05
"""A pause allows the bytes of this much time at once: a timer for each read would cost more than the read."""


class OutputPace:
    """Tells when to pause; both streams of one task share it.

    Args:
        burst_bytes: Number of bytes read without a pause after a quiet period.
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
