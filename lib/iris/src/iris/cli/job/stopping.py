"""Messages about stopped jobs, including attempts on unreachable hosts."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rigging.errors import MarinError

if TYPE_CHECKING:
    from iris.client import IrisClient, SilentAttempt, Stopped

_PATIENCE_SECONDS: Final = 60.0
_LOOK_EVERY_SECONDS: Final = 5.0
_SHOWN: Final = 5


def await_stops(
    client: "IrisClient", results: "Sequence[Stopped | MarinError]", clock: Callable[[], float] = time.monotonic
) -> Iterator[str]:
    """Run `await_stop` for several stopped jobs, each with the number of its stopped child jobs.

    Args:
        client: The cluster's client.
        results: The results of the stops.
        clock: Returns seconds, to measure the wait.
    """
    stops = [result for result in results if not isinstance(result, MarinError)]
    waiting = [job_id for stopped in stops if not stopped.silent for job_id in stopped.job_ids]
    done, silent = _settle(client, waiting, clock)
    for result in results:
        if isinstance(result, MarinError):
            yield f": {result}"
            continue
        children = len(result.job_ids) - 1
        also = f" and {children} child job{'s' if children > 1 else ''}" if children > 0 else ""
        own = [attempt for attempt in silent if attempt.attempt_id.rpartition("/")[0] in result.job_ids]
        yield f"{also} {_words(result, done, own)}"


def await_stop(client: "IrisClient", stopped: "Stopped", clock: Callable[[], float] = time.monotonic) -> str:
    """Wait until all stopped attempts have ended. Return "stopped", or a text about attempts that may still run.

    Args:
        client: The cluster's client.
        stopped: The result of the stop.
        clock: Returns seconds, to measure the wait.
    """
    # For what cannot be reached there may be very long to wait.
    done, silent = _settle(client, [] if stopped.silent else list(stopped.job_ids), clock)
    return _words(stopped, done, silent)


def _settle(client: "IrisClient", job_ids: list[str], clock: Callable[[], float]) -> "tuple[bool, list[SilentAttempt]]":
    """Wait until these jobs' attempts have ended or are unreachable. Return whether all have ended, and those that may
    still run.

    It takes a while to recognise a frozen worker. After the first one, do not wait for another.
    """
    began = clock()
    silent: list[SilentAttempt] = []
    waiting = job_ids
    while waiting:
        left = _PATIENCE_SECONDS - (clock() - began)
        _, done = client.poll_jobs(waiting, seconds=max(min(left, _LOOK_EVERY_SECONDS), 0.0))
        if done and clock() - began < _LOOK_EVERY_SECONDS:
            break
        found = {name: [one for task in client.list_tasks(name) for one in task.silent] for name in waiting}
        silent += [one for attempts in found.values() for one in attempts]
        if done or left <= 0:
            return done, silent
        waiting = [name for name, attempts in found.items() if not attempts]
    return True, silent


def _words(stopped: "Stopped", done: bool, silent: "Sequence[SilentAttempt]") -> str:
    if not stopped.job_ids:
        return "had ended before"
    lines = [str(attempt) for attempt in stopped.silent or silent]
    if lines:
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        return "ended, but " + "; ".join(lines[:_SHOWN]) + more
    return "stopped" if done else "ended; its attempts are still being stopped"
