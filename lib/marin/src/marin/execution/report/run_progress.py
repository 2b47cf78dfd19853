"""The state of a run, computed from its events. Log lines, views and the event log read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

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
from marin.execution.report.words import clock_text, count_words, queue_words, retry_words

# Ends that are kept for the summary of a run, of each kind: a stream of steps may have any number.
MOST_ENDS: Final = 200


class Activity(StrEnum):
    """The state of an unfinished step, in display order."""

    RUNNING = "running"
    RETRYING = "retrying"
    """An attempt has ended without an output, and another will follow."""
    QUEUED = "queued"
    """Its job is submitted and queued."""
    WAITING = "waiting"
    """It waits for dependencies, or for a free slot."""


_ORDER: Final = tuple(Activity)


@dataclass(slots=True)
class Unfinished:
    """A step that has not ended.

    Attributes:
        name: The step's name.
        path: Its output path.
        activity: Its state.
        since: Its start, in seconds since the epoch.
        words: The reason of the queue or retry.
        done: The amount done; None if the step does not report it.
        total: The total amount.
        told: The time of the last report.
    """

    name: str
    path: str
    activity: Activity
    since: float
    words: str = ""
    done: float | None = None
    total: float = 0.0
    told: float = 0.0

    @property
    def share(self) -> float | None:
        """The share done, from 0 to 1; None if the step does not report it."""
        return None if self.done is None or not self.total else min(1.0, max(0.0, self.done / self.total))

    def seconds_left(self, now: float, usual: float | None) -> float | None:
        """Return the estimated remaining time of a running step; None if unknown.

        Args:
            now: The current time, in seconds since the epoch.
            usual: The duration of steps of its name in earlier runs, for a step that does not report progress.
        """
        if self.activity is not Activity.RUNNING:
            return None
        if self.done and self.told > self.since:
            rest = (self.told - self.since) * max(0.0, self.total - self.done) / self.done
            return max(0.0, rest - (now - self.told))
        left = None if usual is None else usual - (now - self.since)
        return left if left is not None and left >= 0 else None


@dataclass(slots=True)
class RunProgress:
    """The progress of a run, computed from its events without a clock or terminal.

    Attributes:
        start: The run's start event; None before.
        end: The run's end event; None before.
        unfinished: The unfinished steps by path, in the order of their last change.
        ended: The number of ended steps per outcome.
        ends: Steps that ran, failed, or have an output made with other values or code, up to `MOST_ENDS` of each kind.
        differing: The number of existing outputs that were made with other values or code.
        usual: The duration of steps in earlier runs in seconds, by name.
    """

    start: RunStarted | None = None
    end: RunEnded | None = None
    unfinished: dict[str, Unfinished] = field(default_factory=dict)
    ended: dict[StepEnd, int] = field(default_factory=lambda: dict.fromkeys(StepEnd, 0))
    ends: list[StepEnded] = field(default_factory=list)
    differing: int = 0
    usual: Mapping[str, float] = field(default_factory=dict)

    def take(self, event: RunEvent) -> None:
        """Update the progress by an event."""
        match event:
            case RunStarted():
                self.start = event
            case StepQueued():
                self._enter(event, Activity.WAITING)
            case StepStarted():
                self._enter(event, Activity.RUNNING)
            case StepJobQueued():
                self._enter(event, Activity.QUEUED, queue_words(event.reason))
            case StepRetrying():
                words = retry_words(event).removeprefix(f"{event.name}: ")
                self._enter(event, Activity.RETRYING, f"retrying: {words}")
            case StepProgressed():
                step = self.unfinished.get(event.path)
                if step is not None:
                    step.done, step.total, step.told = event.done, event.total, event.time
            case StepEnded(status=status):
                self.unfinished.pop(event.path, None)
                self.ended[status] += 1
                self.differing += bool(event.differences)
                count = self.differing if status is StepEnd.CACHED else self.ended[status]
                if (status is not StepEnd.CACHED or event.differences) and count <= MOST_ENDS:
                    self.ends.append(event)
            case RunEnded():
                self.end = event

    def _enter(
        self, event: StepQueued | StepStarted | StepJobQueued | StepRetrying, activity: Activity, words: str = ""
    ) -> None:
        before = self.unfinished.pop(event.path, None)
        since = before.since if before is not None and before.activity is activity else event.time
        self.unfinished[event.path] = Unfinished(event.name, event.path, activity, since, words)

    def at_work(self) -> list[Unfinished]:
        """Return the unfinished steps that have started: running, to be retried, or queued."""
        found = [step for step in self.unfinished.values() if step.activity is not Activity.WAITING]
        return sorted(found, key=lambda step: _ORDER.index(step.activity))

    def counts(self, now: float, *, short: bool = False) -> str:
        """Return the counts on one line: `[1:05] 3/9 steps: 2 running, 3 waiting, 2 done, 0 cached, 1 failed`.

        Args:
            now: The current time, in seconds since the epoch.
            short: Omit zeros and begin with failures, so that they stay visible if the line is truncated.
        """
        unfinished = dict.fromkeys((Activity.RUNNING, Activity.QUEUED, Activity.RETRYING, Activity.WAITING), 0)
        for step in self.unfinished.values():
            unfinished[step.activity] += 1
        always = () if short else (Activity.RUNNING, Activity.WAITING)
        parts = [f"{count} {each}" for each, count in unfinished.items() if count or each in always]
        ended, failed = self.ended, self.ended[StepEnd.FAILED] + self.ended[StepEnd.LOST]
        if short:
            parts = [f"{failed} failed"] * bool(failed) + parts
            words = {StepEnd.SUCCEEDED: "done", StepEnd.CACHED: "cached", StepEnd.DEP_FAILED: "not run"}
            parts += [f"{ended[end]} {word}" for end, word in words.items() if ended[end]]
        else:
            parts.append(count_words(ended))
        started, steps = (0.0, None) if self.start is None else (self.start.time, self.start.steps)
        total = "" if steps is None else f"{sum(ended.values())}/{steps} steps: "
        early = f" (ended by {self.end.error})" if self.end is not None and self.end.error is not None else ""
        return f"[{clock_text(now - started)}] {total}{', '.join(parts)}{early}"
