"""What is said of a job that was stopped: the truth, also about attempts that nobody can reach now."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rigging.errors import MarinError

if TYPE_CHECKING:
    from iris.client import IrisClient, SilentAttempt, Stopped

_PATIENCE_SECONDS: Final = 60.0
_SHOWN: Final = 5


def await_stops(client: "IrisClient", results: "Sequence[Stopped | MarinError]") -> Iterator[str]:
    """`await_stop` for jobs that were stopped together, each with how many child jobs went with it."""
    stops = [result for result in results if not isinstance(result, MarinError)]
    reached = [job_id for stopped in stops if not stopped.silent for job_id in stopped.job_ids]
    done = bool(reached) and client.poll_jobs(reached, seconds=_PATIENCE_SECONDS)[1]
    for result in results:
        if isinstance(result, MarinError):
            yield f": {result}"
            continue
        children = len(result.job_ids) - 1
        also = f" and {children} child job{'s' if children > 1 else ''}" if children > 0 else ""
        is_gone = done and result.job_ids and not result.silent
        yield f"{also} {'stopped' if is_gone else await_stop(client, result)}"


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
