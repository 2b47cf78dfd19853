"""When the steps of a run ran, and which of them determined its duration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from marin.recorded.deciding.run_steps import RunStep

_NICE: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST_TICKS: Final = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """A step on the time axis.

    Attributes:
        step: The step.
        left: Its start, in percent of the axis.
        width: Its duration, likewise.
        seconds: Its duration.
        is_critical: Whether it is on the critical path.
    """

    step: RunStep
    left: float
    width: float
    seconds: float
    is_critical: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of a run over time.

    Attributes:
        bars: The steps that ran, by start.
        ticks: The position of each tick in percent, and its time in seconds since the axis began.
        seconds: The length of the axis.
        critical_seconds: The running time of the critical path.
    """

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, float], ...]
    seconds: float
    critical_seconds: float


def timeline_of(steps: Sequence[RunStep], now: float) -> Timeline:
    """Return the timeline of the steps that began; running steps last until now.

    Args:
        steps: The steps of a run.
        now: The current time, in seconds since the epoch.
    """
    spans = {step.path: span for step in steps if (span := _span(step, now)) is not None}
    if not spans:
        return Timeline((), (), 0.0, 0.0)
    begin = min(first for first, _ in spans.values())
    length = max(max(last for _, last in spans.values()) - begin, 1e-3)
    critical = critical_path(steps, {path: last for path, (_, last) in spans.items()})
    bars = [
        Bar(step, 100 * (first - begin) / length, 100 * (last - first) / length, last - first, step.path in critical)
        for step in steps
        if step.path in spans
        for first, last in [spans[step.path]]
    ]
    bars.sort(key=lambda bar: (bar.left, -bar.width))
    gap = next((gap for gap in _NICE if length / gap <= _MOST_TICKS), math.ceil(length / _MOST_TICKS / 86400) * 86400)
    ticks = tuple((100 * gap * number / length, float(gap * number)) for number in range(int(length / gap) + 1))
    return Timeline(tuple(bars), ticks, length, sum(bar.seconds for bar in bars if bar.is_critical))


def critical_path(steps: Sequence[RunStep], ends: Mapping[str, float]) -> set[str]:
    """Return the output paths on the critical path: the step that ended last, the dependency of it that ended last,
    and so on.

    Args:
        steps: The steps of a run.
        ends: The end of each step that ran, by output path.
    """
    needs = {step.path: step.dependencies for step in steps}
    at = max(ends, key=lambda path: ends[path], default=None)
    found: set[str] = set()
    while at is not None and at not in found:
        found.add(at)
        at = max((need for need in needs.get(at, ()) if need in ends), key=lambda path: ends[path], default=None)
    return found


def _span(step: RunStep, now: float) -> tuple[float, float] | None:
    if step.status in ("running", "retrying") and step.began is not None:
        return step.began, max(now, step.began)
    if step.ended is None or step.status == "cached":
        return None
    began = step.began if step.began is not None else step.ended - (step.seconds or 0.0)
    return (began, max(began, step.ended)) if step.began is not None or step.seconds else None
