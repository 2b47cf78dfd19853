"""A run as plain log lines: for files, CI, and jobs."""

from __future__ import annotations

import logging

from marin.execution.run_events import RunEnded, RunEvent, RunStarted, StepEnd, StepEnded, StepQueued, StepStarted

logger = logging.getLogger(__name__)


class LogLines:
    """Writes a log line for each thing that happens: what starts, what ends and how, and where each output is."""

    def on_event(self, event: RunEvent) -> None:
        """Log an event; that a step is queued is not news."""
        match event:
            case RunStarted(steps=steps, info_path=info_path):
                count = "steps as they come" if steps is None else f"{steps} step(s)"
                logger.info("run: %s%s", count, f", info at {info_path}" if info_path else "")
            case StepQueued():
                pass
            case StepStarted(name=name, path=path):
                logger.info("step %s: running -> %s", name, path)
            case StepEnded():
                level = logging.INFO if event.status in (StepEnd.CACHED, StepEnd.SUCCEEDED) else logging.ERROR
                logger.log(level, "step %s", end_words(event))
            case RunEnded(error=error, seconds=seconds):
                if error is not None:
                    logger.error("run: ended by %s after %.1f s", error, seconds)


def end_words(event: StepEnded) -> str:
    """How a step ended, in a line for people: `stats: done in 1.20 s -> /prefix/stats-0a1b2c`."""
    log = f" (log: {event.log})" if event.log else ""
    match event.status:
        case StepEnd.CACHED:
            return f"{event.name}: already done -> {event.path}"
        case StepEnd.SUCCEEDED:
            return f"{event.name}: done in {event.seconds:.2f} s -> {event.path}"
        case StepEnd.DEP_FAILED:
            return f"{event.name}: not run, because a dependency failed -> {event.path}: {event.error}"
        case StepEnd.LOST:
            return f"{event.name}: lost its lease, so its work does not count -> {event.path}: {event.error}{log}"
        case StepEnd.FAILED:
            return f"{event.name}: failed -> {event.path}: {event.error}{log}"
