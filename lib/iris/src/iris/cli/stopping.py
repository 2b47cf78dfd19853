"""What is said of a job that was stopped: the truth, also about attempts that nobody can reach now."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris.client import IrisClient, SilentAttempt, Stopped

_PATIENCE_SECONDS: Final = 60.0
_SHOWN: Final = 5


def await_stop(client: "IrisClient", stopped: "Stopped") -> str:
    """Wait until nothing lives of what was stopped; returns "stopped", or what may live and until when."""
    if not stopped.job_ids:
        return "had ended before"
    # For what cannot be reached there may be very long to wait.
    patience = 0.0 if stopped.silent else _PATIENCE_SECONDS
    _, done = client.poll_jobs(list(stopped.job_ids), seconds=patience)
    silent: Iterable[SilentAttempt] = stopped.silent
    if not done and not silent:
        silent = (found for name in stopped.job_ids for task in client.list_tasks(name) for found in task.silent)
    lines = [str(attempt) for attempt in silent]
    if lines:
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return "ended, but " + "; ".join(lines[:_SHOWN]) + more
    return "stopped" if done else "ended; its attempts are still being stopped"
