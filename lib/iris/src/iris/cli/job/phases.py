"""Describes the phases of a followed job that last long enough to mention."""

from typing import TYPE_CHECKING, Final

from iris.cli.output import duration
from iris.cluster.types import JobState

if TYPE_CHECKING:
    from iris.client import JobStatus

STILL_EVERY_SECONDS: Final = 30.0


def present_phase(status: "JobStatus", waited_seconds: float) -> str:
    """Return the current phase of a live job, for a line that is rewritten; "" while it runs.

    Args:
        status: The job's status.
        waited_seconds: How long it has been in this phase.
    """
    if status.pending_reason or status.state is JobState.PENDING:
        reason = status.pending_reason or "waiting for the next scheduling round"
        return f"waiting for {duration(waited_seconds)}: {reason}"
    if status.state is JobState.BUILDING:
        return f"building the environment for {duration(waited_seconds)}"
    return ""


class PhaseTeller:
    """Announces each phase of one job once: pending with the reason, building the environment, running.

    "running" is announced only after another phase.
    """

    def __init__(self) -> None:
        self._reason = ""
        self._building_since: float | None = None
        self._next_word = 0.0

    def tell(self, status: "JobStatus", now: float) -> str:
        """Return the line for a new status; empty if there is nothing new.

        Args:
            status: The job's status.
            now: Monotonic seconds.
        """
        if status.state is JobState.BUILDING and not status.pending_reason:
            self._reason = ""
            return self._tell_building(now)
        if status.state is JobState.RUNNING and not status.pending_reason:
            return self._tell_running(now)
        self._building_since = None
        if not status.pending_reason or status.pending_reason == self._reason:
            return ""
        self._reason = status.pending_reason
        return f"waiting: {status.pending_reason}"

    def _tell_building(self, now: float) -> str:
        if self._building_since is None:
            self._building_since = now
            self._next_word = now + STILL_EVERY_SECONDS
            return "building: the worker fetches the files and builds the environment"
        if now < self._next_word:
            return ""
        self._next_word = now + STILL_EVERY_SECONDS
        return f"still building (for {duration(now - self._building_since)})"

    def _tell_running(self, now: float) -> str:
        if self._building_since is not None:
            took = duration(now - self._building_since)
            self._building_since, self._reason = None, ""
            return f"running (built in {took})"
        if self._reason:
            self._reason = ""
            return "running"
        return ""
