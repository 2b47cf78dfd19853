"""Decide whether a step is retried after an attempt. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from marin.execution.config.tries import Tries

# Clusters start a preempted job again themselves, a hundred times by default; what goes on after that has no end.
MOST_INTERRUPTIONS: Final = 100


class Outcome(StrEnum):
    """The outcome of one attempt."""

    SUCCEEDED = "succeeded"
    """The output exists, perhaps made by another run."""
    FAILED = "failed"
    """Its function raised, or its job failed."""
    TIMED_OUT = "timed out"
    """Its function ran longer than its `timeout`."""
    PREEMPTED = "preempted"
    """Its job was preempted more often than its cluster restarts a job."""
    LOST = "lost its lease"
    """Another run may have begun to make the output."""
    STOPPED = "was stopped"
    """A user stopped its job, or the step must not be tried."""


CHARGED: Final = frozenset({Outcome.FAILED, Outcome.TIMED_OUT})
"""Outcomes that count against `retries`."""
INTERRUPTED: Final = frozenset({Outcome.PREEMPTED, Outcome.LOST})
"""Outcomes that are not failures: retried at most `MOST_INTERRUPTIONS` times, not counted in `retries`."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Counts of the ended attempts of a step.

    Attributes:
        failures: Attempts that count against `retries`.
        interruptions: Attempts that do not count against `retries`.
    """

    failures: int = 0
    interruptions: int = 0

    @property
    def attempts(self) -> int:
        """The number of attempts that ended without an output."""
        return self.failures + self.interruptions


NEVER: Final = Tried()


@dataclass(frozen=True, slots=True)
class Next:
    """The action after an attempt's end.

    Attributes:
        tried: The counts of all attempts.
        delay: Seconds until the next attempt, or None.
    """

    tried: Tried
    delay: float | None


def advance(tries: Tries, tried: Tried, outcome: Outcome, *, has_ended: bool = True) -> Next:
    """Return the action after the end of an attempt.

    A step without `retries` runs once. With `retries=n`, n failures are retried; interruptions do not count. A
    deliberate stop is final, and nothing is retried while an attempt still runs.

    Args:
        tries: The step's retries and timeout.
        tried: The counts of the earlier attempts.
        outcome: The outcome of this attempt.
        has_ended: Whether all work of this attempt has ended.
    """
    now = Tried(tried.failures + (outcome in CHARGED), tried.interruptions + (outcome in INTERRUPTED))
    if outcome in CHARGED:
        again = now.failures <= tries.retries
    else:
        again = outcome in INTERRUPTED and tries.retries > 0 and now.interruptions <= MOST_INTERRUPTIONS
    return Next(now, tries.retry_delay if again and has_ended else None)
