"""The rules by which a running attempt is found unhealthy. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WatchRules:
    """The watches that a job asks for; times in seconds.

    Args:
        health_cmd: A line for /bin/sh; empty: none.
        interval_s: Between the end of one check and the next, and before the first.
        timeout_s: A check that takes longer has failed.
        retries: So many failures in a row mean that the attempt is unhealthy.
        stall_s: So long without progress means that it hangs; 0: never.
    """

    health_cmd: str = ""
    interval_s: float = 30.0
    timeout_s: float = 10.0
    retries: int = 3
    stall_s: float = 0.0

    @property
    def is_on(self) -> bool:
        """Whether there is anything to watch for."""
        return bool(self.health_cmd or self.stall_s)

    def to_note(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


NOT_WATCHED = WatchRules()


def check_failed(rules: WatchRules, failures: int, last: str) -> str:
    """Why an attempt is unhealthy, or nothing.

    Args:
        rules: The job's.
        failures: Checks in a row that have failed, the last one included.
        last: How that one ended.
    """
    if failures < max(rules.retries, 1):
        return ""
    times = "once" if failures == 1 else f"{failures} times in a row"
    return f"unhealthy: the health command failed {times}, last with {last}"


def stalled(rules: WatchRules, dumped: Sequence[int]) -> str:
    """Why an attempt that makes no progress is ended.

    Args:
        rules: The job's.
        dumped: Processes that have written their threads into the log.
    """
    if dumped:
        found = f"the threads of process {', '.join(map(str, dumped))} are in its log"
    else:
        found = (
            "there is no dump of its threads: no Python process of it has reported progress (iris.report_progress()), "
            "or none lives"
        )
    return f"stalled: no progress for {rules.stall_s:g} s; {found}"
