"""Decides whether a running attempt is unhealthy or stalled. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WatchRules:
    """The health checks that a job requests; times in seconds.

    Args:
        health_cmd: A line for /bin/sh; empty for none.
        interval_s: Time between the end of a check and the next, and before the first.
        timeout_s: Maximum duration of a check, which fails otherwise.
        retries: Number of consecutive failures after which the attempt is unhealthy.
        stall_s: Maximum time without progress; 0 for no limit.
    """

    health_cmd: str = ""
    interval_s: float = 30.0
    timeout_s: float = 10.0
    retries: int = 3
    stall_s: float = 0.0

    @property
    def is_on(self) -> bool:
        """Whether any check is requested."""
        return bool(self.health_cmd or self.stall_s)

    def to_note(self) -> dict[str, Any]:
        """Return the rules as JSON."""
        return asdict(self)


NOT_WATCHED = WatchRules()


def check_failed(rules: WatchRules, failures: int, last: str) -> str:
    """Return why an attempt is unhealthy; empty if it is healthy.

    Args:
        rules: The job's rules.
        failures: Number of consecutive failed checks, including the last.
        last: The result of the last check.
    """
    if failures < max(rules.retries, 1):
        return ""
    times = "once" if failures == 1 else f"{failures} times in a row"
    return f"unhealthy: the health command failed {times}, last with {last}"


def stalled(rules: WatchRules, dumped: Sequence[int]) -> str:
    """Return the error of a stalled attempt.

    Args:
        rules: The job's rules.
        dumped: Processes that dumped their threads to the log.
    """
    if dumped:
        found = f"the threads of process {', '.join(map(str, dumped))} are in its log"
    else:
        found = "no thread dump: none of its live Python processes has reported progress (iris.report_progress())"
    return f"stalled: no progress for {rules.stall_s:g} s; {found}"
