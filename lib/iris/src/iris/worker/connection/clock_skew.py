"""How far this host's clock is from the controller's, from the round trips of beats. Pure.

The controller's answer names its time; the worker knows when it asked and when it was answered. The clocks agree at the
middle of the round trip as far as its two ways took equally long, so the error is at most half of it: the shortest of
the last round trips says most. Nothing but people depends on this.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """The worker's clock minus the controller's, give or take `error_ms`."""

    skew_ms: int
    error_ms: int


class SkewEstimate:
    """The skew by the best of the last few round trips."""

    def __init__(self) -> None:
        self._samples: deque[ClockSkew] = deque(maxlen=_KEPT)

    def add(self, sent_ms: int, received_ms: int, received_at_ms: int, controller_at_ms: int) -> None:
        """Take in one round trip.

        Args:
            sent_ms: When the worker asked, by a clock that is never set.
            received_ms: When it was answered, by the same.
            received_at_ms: The same moment in Unix ms by the worker's clock.
            controller_at_ms: Unix ms by the controller's clock when it answered; 0: it did not say.
        """
        if not controller_at_ms or received_ms < sent_ms:
            return
        half = (received_ms - sent_ms + 1) // 2
        self._samples.append(ClockSkew(received_at_ms - half - controller_at_ms, half))

    @property
    def best(self) -> ClockSkew | None:
        """The estimate with the smallest error, of these the latest; None before the first."""
        return min(reversed(self._samples), key=lambda sample: sample.error_ms, default=None)
