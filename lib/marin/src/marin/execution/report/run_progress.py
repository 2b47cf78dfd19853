"""The state of a run, computed from its events, and what of it is shown: without a clock, a terminal or a notebook."""

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
from marin.execution.report.log_lines import count_words, retry_words

# Ends that are kept for the summary of a run, of each kind: a stream of steps may have any number.
MOST_ENDS: Final = 200


class Activity(StrEnum):
    """State of an unfinished step."""

    RUNNING = "running"
    QUEUED = "queued"
    """Its job is submitted, and waits for its cluster."""
    RETRYING = "retrying"
    """An attempt has ended without an output; the next one follows."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """View of one step that is at work.

    Attributes:
        name: The step's name.
        path: Its output path.
        activity: What it does.
        seconds: For how long.
        words: Why it is queued, or is tried again; "" when that is not known, and for running steps.
        done: How much is done; None when the step does not tell.
        total: How much there is to do.
        seconds_left: How long it will still run; None when nothing tells.
    """

    name: str
    path: str
    activity: Activity
    seconds: float
    words: str = ""
    done: float | None = None
    total: float | None = None
    seconds_left: float | None = None

    @property
    def share(self) -> float | None:
        """How much of it is done, from 0 to 1; None when the step does not tell."""
        if self.done is None or not self.total:
            return None
        return min(1.0, max(0.0, self.done / self.total))


@dataclass(frozen=True, slots=True)
class ShownRun:
    """View of a run at one moment.

    Attributes:
        seconds: How long it has run.
        total: The number of its steps; None when it is not known beforehand.
        running: How many run.
        queued: How many have a job that is queued.
        retrying: How many wait for their next attempt.
        waiting: How many wait for their dependencies, or for their turn.
        ended: How many ended in each way.
        steps: Those at work, running ones first.
        left_out: How many more are at work.
    """

    seconds: float
    total: int | None
    running: int
    queued: int
    retrying: int
    waiting: int
    ended: Mapping[StepEnd, int]
    steps: tuple[ShownStep, ...]
    left_out: int

    @property
    def ended_count(self) -> int:
        """How many steps have ended."""
        return sum(self.ended.values())


@dataclass(slots=True)
class RunProgress:
    """The progress of a run, computed from its events without a clock or a terminal.

    Attributes:
        started: When the run began, in seconds since the epoch.
        total: The number of its steps; None when it is not known beforehand.
        waiting: Names of steps that wait, by path.
        queued: Name of steps whose job is queued, why, and since when, by path.
        retrying: Name of steps that are tried again, why, and since when, by path.
        running: Name and start of running steps, by path.
        ended: How many ended in each way.
        ends: The ends of steps that were not there already, `MOST_ENDS` of each kind.
        far: How far running steps are (done, total, and when that was told), by path.
        usual: How long steps of this name took in earlier runs, in seconds.
        end: The end of the run; None before.
    """

    started: float = 0.0
    total: int | None = None
    waiting: dict[str, str] = field(default_factory=dict)
    queued: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    retrying: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    running: dict[str, tuple[str, float]] = field(default_factory=dict)
    ended: dict[StepEnd, int] = field(default_factory=lambda: dict.fromkeys(StepEnd, 0))
    ends: list[StepEnded] = field(default_factory=list)
    far: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)
    end: RunEnded | None = None

    def take(self, event: RunEvent) -> None:
        """Update the progress by an event."""
        match event:
            case RunStarted(time=when, steps=steps):
                self.started, self.total = when, steps
            case StepQueued(path=path, name=name):
                self.waiting[path] = name
            case StepJobQueued(path=path, name=name, reason=reason, time=when):
                since = self.queued[path][2] if path in self.queued else when
                self._leave(path)
                self.queued[path] = (name, reason, since)
            case StepProgressed(path=path, done=done, total=total, time=when):
                self.far[path] = (done, total, when)
            case StepRetrying(path=path, name=name, time=when):
                self._leave(path)
                self.retrying[path] = (name, retry_words(event).removeprefix(f"{name}: "), when)
            case StepStarted(path=path, name=name, time=when):
                self._leave(path)
                self.running[path] = (name, when)
            case StepEnded(path=path, status=status):
                self._leave(path)
                self.ended[status] += 1
                if status is not StepEnd.CACHED and self.ended[status] <= MOST_ENDS:
                    self.ends.append(event)
            case RunEnded():
                self.end = event

    def _leave(self, path: str) -> None:
        """Forget what the step at a path did."""
        self.waiting.pop(path, None)
        self.queued.pop(path, None)
        self.retrying.pop(path, None)
        self.running.pop(path, None)
        self.far.pop(path, None)

    def shown(self, now: float, most: int = 20) -> ShownRun:
        """Return what is shown of the run.

        Args:
            now: Seconds since the epoch.
            most: At most so many steps, running ones first; the others are counted.
        """
        others = [(Activity.RETRYING, self.retrying), (Activity.QUEUED, self.queued)]
        at_work = len(self.running) + len(self.retrying) + len(self.queued)
        most = max(0, most)
        steps = [self._running(path, now) for path in list(self.running)[:most]]
        for activity, found in others:
            for path, (name, words, since) in list(found.items())[: most - len(steps)]:
                steps.append(ShownStep(name, path, activity, max(0.0, now - since), words))
        return ShownRun(
            seconds=max(0.0, now - self.started),
            total=self.total,
            running=len(self.running),
            queued=len(self.queued),
            retrying=len(self.retrying),
            waiting=len(self.waiting),
            ended=dict(self.ended),
            steps=tuple(steps),
            left_out=at_work - len(steps),
        )

    def _running(self, path: str, now: float) -> ShownStep:
        name, when = self.running[path]
        far = self.far.get(path)
        left = seconds_left(now, when, far, self.usual.get(name))
        done, total = (None, None) if far is None else far[:2]
        seconds = max(0.0, now - when)
        return ShownStep(name, path, Activity.RUNNING, seconds, done=done, total=total, seconds_left=left)

    def summary(self, now: float) -> str:
        """Return the counts in one line."""
        return count_line(self.shown(now, most=0))


def count_line(shown: ShownRun, *, short: bool = False) -> str:
    """Return the counts of a run in one line: `[1:05] 3/9 steps: 2 running, 3 waiting, 2 done, 0 cached, 1 failed`.

    Args:
        shown: What is shown of the run.
        short: Leave out what is 0, and begin with failures, so that they are seen when the line is cut.
    """
    failed = shown.ended[StepEnd.FAILED] + shown.ended[StepEnd.LOST]
    parts = [
        *([f"{failed} failed"] if short and failed else ()),
        *([f"{shown.running} running"] if shown.running or not short else ()),
        *([f"{shown.queued} queued"] if shown.queued else ()),
        *([f"{shown.retrying} retrying"] if shown.retrying else ()),
        *([f"{shown.waiting} waiting"] if shown.waiting or not short else ()),
    ]
    if not short:
        parts.append(count_words(shown.ended))
    else:
        words = {StepEnd.SUCCEEDED: "done", StepEnd.CACHED: "cached", StepEnd.DEP_FAILED: "not run"}
        parts += [f"{shown.ended[end]} {word}" for end, word in words.items() if shown.ended[end]]
    total = "" if shown.total is None else f"{shown.ended_count}/{shown.total} steps: "
    return f"[{clock_text(shown.seconds)}] {total}{', '.join(parts)}"


def seconds_left(
    now: float, started: float, far: tuple[float, float, float] | None, usual: float | None
) -> float | None:
    """Return how long a step will still take: by its progress, else by its earlier runs; None when nothing tells.

    Args:
        now: Seconds since the epoch.
        started: When it started.
        far: How much is done, of how much, and when that was so.
        usual: Seconds that it usually takes.
    """
    if far is not None and far[0] > 0 and far[2] > started:
        done, total, when = far
        return max(0.0, (when - started) * max(0.0, total - done) / done - (now - when))
    if usual is None or now - started > usual:
        return None
    return usual - (now - started)


def clock_text(seconds: float) -> str:
    """Return a duration as `5.2s`, `3:05` or `1:02:03`."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
