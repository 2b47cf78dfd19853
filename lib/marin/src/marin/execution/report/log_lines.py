"""A run as plain log lines: for files, CI, and jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from marin.execution.report.events import (
    RunEnded,
    RunEvent,
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepProgressed,
    StepQueued,
    StepRetrying,
    StepStarted,
)

logger = logging.getLogger(__name__)


# In a larger run, steps whose output was there are only counted: a line for each would bury the other lines.
MOST_CACHED_LINES = 50

# Seconds between two lines about how far a step is.
PROGRESS_SECONDS = 60.0


class LogLines:
    """Observer that writes a log line for each event: which step starts or ends, how, and where its output is."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ended = dict.fromkeys(StepEnd, 0)
        self._names_cached = True
        self._differing = 0
        self._progress_due: dict[str, float] = {}

    def on_event(self, event: RunEvent) -> None:
        """Log an event; StepQueued is not logged, and StepProgressed once a minute for each step."""
        match event:
            case StepQueued():
                pass
            case StepProgressed(time=when, name=name, path=path):
                with self._guard:
                    is_due = when >= self._progress_due.get(path, 0.0)
                    self._progress_due[path] = when + PROGRESS_SECONDS if is_due else self._progress_due[path]
                if is_due:
                    logger.info("step %s: %s", name, progress_words(event.done, event.total))
            case StepEnded(status=status):
                with self._guard:
                    self._ended[status] += 1
                    differing = self._differing = self._differing + bool(event.differences)
                if event.differences:
                    _warn_of_differences(event, differing)
                    return
                if status is StepEnd.CACHED and not self._names_cached:
                    return
                level = logging.INFO if status in (StepEnd.CACHED, StepEnd.SUCCEEDED) else logging.ERROR
                if logger.isEnabledFor(level):
                    logger.log(level, "step %s", end_words(event))
            case StepJobQueued(name=name, path=path, reason=reason):
                logger.info("step %s: %s -> %s", name, queue_words(reason), path)
            case StepRetrying(path=path, error=error):
                logger.warning("step %s -> %s: %s", retry_words(event), path, error)
            case StepStarted(name=name, path=path):
                logger.info("step %s: running -> %s", name, path)
            case RunStarted(steps=steps, info_path=info_path):
                self._ended = dict.fromkeys(StepEnd, 0)
                self._differing = 0
                self._names_cached = steps is not None and steps <= MOST_CACHED_LINES
                count = "steps as they come" if steps is None else f"{steps} step(s)"
                logger.info("run: %s%s", count, f", info at {info_path}" if info_path else "")
            case RunEnded(error=None, seconds=seconds):
                logger.info("run: %s, in %.1f s", count_words(self._ended), seconds)
            case RunEnded(error=error, seconds=seconds):
                logger.error("run: %s, ended by %s after %.1f s", count_words(self._ended), error, seconds)


def _warn_of_differences(event: StepEnded, count: int) -> None:
    if count <= MOST_CACHED_LINES:
        logger.warning("step %s", end_words(event))
    elif count == MOST_CACHED_LINES + 1:
        logger.warning("more outputs were made with other unversioned values or code; --explain lists all")


def count_words(ended: Mapping[StepEnd, int]) -> str:
    """Return how many steps ended in each way: `3 done, 2 cached, 1 failed`."""
    failed = ended[StepEnd.FAILED] + ended[StepEnd.LOST]
    words = [f"{ended[StepEnd.SUCCEEDED]} done", f"{ended[StepEnd.CACHED]} cached", f"{failed} failed"]
    if ended[StepEnd.DEP_FAILED]:
        words.append(f"{ended[StepEnd.DEP_FAILED]} not run")
    return ", ".join(words)


def queue_words(reason: str) -> str:
    """Return a description of a queued job: `queued: {reason}`."""
    return f"queued: {reason}" if reason else "queued"


def progress_words(done: float, total: float) -> str:
    """Return how far a step is: `30/120 (25 %)`."""
    return f"{done:g}/{total:g} ({100 * done / total:.0f} %)"


def retry_words(event: StepRetrying) -> str:
    """Return what happens to a step after a failed attempt: `stats: attempt 1 failed, again in 5 s`."""
    again = f"again in {event.delay:g} s" if event.delay else "again now"
    return f"{event.name}: attempt {event.attempt} {event.outcome}, {again}"


def end_words(event: StepEnded) -> str:
    """Return how a step ended, in one line: `stats: done in 1.20 s -> /prefix/stats-0a1b2c`."""
    log = f" (log: {event.log})" if event.log else ""
    match event.status:
        case StepEnd.CACHED:
            made = f" (made with other values or code: {'; '.join(event.differences)})" if event.differences else ""
            return f"{event.name}: already done -> {event.path}{made}"
        case StepEnd.SUCCEEDED:
            queued = f" ({event.queued_seconds:.2f} s queued before)" if event.queued_seconds else ""
            return f"{event.name}: done in {event.seconds:.2f} s{queued} -> {event.path}"
        case StepEnd.DEP_FAILED:
            return f"{event.name}: not run, because a dependency failed -> {event.path}: {event.error}"
        case StepEnd.LOST:
            return f"{event.name}: lost its lease, so its work does not count -> {event.path}: {event.error}{log}"
        case StepEnd.FAILED:
            return f"{event.name}: failed -> {event.path}: {event.error}{log}"
