"""The difference between this host's clock and the controller's, estimated from the round trips of heartbeats. Pure.

The controller's answer contains the controller's time. The estimate assumes that both directions take equally long, so
its error is at most half the round trip. The shortest of the last round trips is the most accurate. The result is only
displayed.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """The worker's clock minus the controller's, with an error of at most `error_ms`."""

    skew_ms: int
    error_ms: int


class SkewEstimate:
    """The skew estimated from the best of the last few round trips."""

    def __init__(self) -> None:
        self._samples: deque[ClockSkew] = deque(maxlen=_KEPT)

    def add(self, sent_ms: int, received_ms: int, received_at_ms: int, controller_at_ms: int) -> None:
        """Add one round trip.

        Args:
            sent_ms: When the worker sent the heartbeat, on a monotonic clock.
            received_ms: When the answer came, on the same clock.
            received_at_ms: The same time in Unix ms on the worker's clock.
            controller_at_ms: Unix ms on the controller's clock when it answered; 0 if not given.
        """
        if not controller_at_ms or received_ms < sent_ms:
            return
        half = (received_ms - sent_ms + 1) // 2
        self._samples.append(ClockSkew(received_at_ms - half - controller_at_ms, half))

    @property
    def best(self) -> ClockSkew | None:
        """Return the latest estimate with the smallest error; None before the first."""
        return min(reversed(self._samples), key=lambda sample: sample.error_ms, default=None)
