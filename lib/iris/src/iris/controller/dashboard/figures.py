"""The controller's metrics: the number and duration of rounds, commits and calls."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

_LATEST: Final = 1000


class Times:
    """The number and the durations of an operation's runs."""

    __slots__ = ("count", "errors", "last_ms", "latest_ms", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.seconds = 0.0
        self.last_ms = 0.0
        self.latest_ms: deque[float] = deque(maxlen=_LATEST)

    def add(self, seconds: float, *, failed: bool = False) -> None:
        """Count one operation.

        Args:
            seconds: Its duration.
            failed: Whether it failed.
        """
        self.count += 1
        self.errors += failed
        self.seconds += seconds
        self.last_ms = seconds * 1000
        self.latest_ms.append(self.last_ms)

    @property
    def p99_ms(self) -> float:
        """Return the 99th percentile of the latest durations in ms; 0 if there are none."""
        return percentile(self.latest_ms, 0.99)


class Figures:
    """Totals since the controller started.

    Attributes:
        rounds: Scheduling rounds.
        commits: Commits to the database.
        events: Processed events.
        calls: Calls, by the name of the RPC.
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
            method: The gRPC name, "/package.Service/Method".
            seconds: Its duration.
            failed: Whether it failed.
        """
        times = self.calls.get(method)
        if times is None:
            times = self.calls[method] = Times()
        times.add(seconds, failed=failed)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least the given share of the values does not exceed; 0 for no values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
