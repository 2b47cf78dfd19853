"""Counts that the controller keeps of itself: rounds, commits and calls, how many and how long."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

_LATEST: Final = 1000


class Times:
    """How often something was done, and how long it took."""

    __slots__ = ("count", "errors", "last_ms", "latest_ms", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.seconds = 0.0
        self.last_ms = 0.0
        self.latest_ms: deque[float] = deque(maxlen=_LATEST)

    def add(self, seconds: float, *, failed: bool = False) -> None:
        """Count one.

        Args:
            seconds: How long it took.
            failed: It ended with an error.
        """
        self.count += 1
        self.errors += failed
        self.seconds += seconds
        self.last_ms = seconds * 1000
        self.latest_ms.append(self.last_ms)

    @property
    def p99_ms(self) -> float:
        """The time that 99 of 100 of the latest took at most, in ms; 0 while there is none."""
        return percentile(self.latest_ms, 0.99)


class Figures:
    """Totals since the controller began.

    Attributes:
        rounds: Of the scheduler.
        commits: To the database.
        events: That were decided.
        calls: By the name of the RPC.
    """

    __slots__ = ("calls", "commits", "events", "rounds")

    def __init__(self) -> None:
        self.rounds = Times()
        self.commits = Times()
        self.events = 0
        self.calls: dict[str, Times] = {}

    def called(self, method: str, seconds: float, *, failed: bool) -> None:
        """Count a call.

        Args:
            method: As gRPC names it, "/package.Service/Method".
            seconds: How long it took.
            failed: It ended with an error.
        """
        times = self.calls.get(method)
        if times is None:
            times = self.calls[method] = Times()
        times.add(seconds, failed=failed)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least such a share of all do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
