"""A run as plain log lines, for files, CI, and jobs."""

from __future__ import annotations

import logging
import threading
from typing import Final

from marin.execution.report.events import (
    RunEnded,
    RunEvent,
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepProgressed,
    StepRetrying,
    StepStarted,
)
from marin.execution.report.run_progress import RunProgress
from marin.execution.report.words import count_words, end_words, progress_words, queue_words, retry_words
from marin.execution.version.differences import WHAT_TO_TYPE

# People read these lines: the name of the module would be noise.
logger = logging.getLogger("marin")

# In a larger run, steps whose output was there are only counted: a line for each would bury the other lines.
MOST_CACHED_LINES: Final = 50

# Seconds between two lines about how far a step is.
PROGRESS_SECONDS: Final = 60.0


class LogLines:
    """An observer that logs the start and end of steps, with outcomes and output paths."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._progress = RunProgress()
        self._due: dict[str, float] = {}

    def on_event(self, event: RunEvent) -> None:
        """Log an event. StepQueued is not logged, and StepProgressed once a minute for each step."""
        with self._guard:
            if isinstance(event, RunStarted):
                self._progress = RunProgress()
            self._progress.take(event)
            ended, differing, start = self._progress.ended, self._progress.differing, self._progress.start
            is_due = False
            if isinstance(event, StepProgressed) and event.time >= self._due.get(event.path, 0.0):
                self._due[event.path], is_due = event.time + PROGRESS_SECONDS, True
        match event:
            case StepProgressed() if is_due:
                logger.info("step %s: %s", event.name, progress_words(event.done, event.total))
            case StepEnded() if event.differences:
                if differing <= MOST_CACHED_LINES:
                    # A stream of bare specs has no such options.
                    is_told = differing == 1 and (start is None or start.steps is not None)
                    logger.warning("step %s%s", end_words(event), f"; {WHAT_TO_TYPE}" if is_told else "")
                elif differing == MOST_CACHED_LINES + 1:
                    logger.warning("more outputs were made with other unversioned values or code; --explain lists all")
            case StepEnded(status=StepEnd.CACHED):
                if start is None or (start.steps is not None and start.steps <= MOST_CACHED_LINES):
                    logger.info("step %s", end_words(event))
            case StepEnded(status=status):
                level = logging.INFO if status is StepEnd.SUCCEEDED else logging.ERROR
                if logger.isEnabledFor(level):
                    logger.log(level, "step %s", end_words(event))
            case StepJobQueued(name=name, path=path, reason=reason):
                logger.info("step %s: %s -> %s", name, queue_words(reason), path)
            case StepRetrying(path=path, error=error):
                logger.warning("step %s -> %s: %s", retry_words(event), path, error)
            case StepStarted(name=name, path=path):
                logger.info("step %s: running -> %s", name, path)
            case RunStarted(steps=steps, info_path=info_path):
                count = "steps from a stream" if steps is None else f"{steps} step(s)"
                logger.info("run: %s%s", count, f", info at {info_path}" if info_path else "")
            case RunEnded(error=None, seconds=seconds):
                logger.info("run: %s, in %.1f s", count_words(ended), seconds)
            case RunEnded(error=error, seconds=seconds):
                logger.error("run: %s, ended by %s after %.1f s", count_words(ended), error, seconds)
