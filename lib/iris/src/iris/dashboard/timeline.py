"""Tasks as bars over time, with their earlier attempts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iris.rpc.generated import iris_pb2 as pb

_DAY: Final = 86400
_MOST_TICKS: Final = 6
_STEPS: Final = (
    *((step, 1, "s") for step in (1, 2, 5, 10, 20)),
    *((step, 60, "min") for step in (1, 2, 5, 10, 20)),
    *((step, 3600, "h") for step in (1, 2, 4, 8)),
    *((step, _DAY, "d") for step in (1, 2, 5, 10, 20)),
)
"""Distances of marks of an axis: number, unit in seconds, word."""


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt of a task.

    Attributes:
        attempt: Its number.
        state: The name of its state; "earlier" if another attempt followed it, "preempted" if it was no failure.
        left: Its start, in percent of the whole width.
        width: Its width, in percent.
        words: Its description: number, duration, cause of the end.
    """

    attempt: int
    state: str
    left: float
    width: float
    words: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A task.

    Attributes:
        label: The task's number.
        state: The name of its state.
        seconds: Duration of its current or last attempt.
        earlier: Number of earlier attempts.
        spans: Its attempts with known times, oldest first.
    """

    label: str
    state: str
    seconds: float
    earlier: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """The times of an attempt.

    Attributes:
        number: Its number.
        begin_ms: Unix time.
        end_ms: Unix time; the current time for a running attempt.
    """

    number: int
    begin_ms: int
    end_ms: int


def attempts_in_time(task: pb.TaskStatus, now_ms: int) -> list[AttemptTimes]:
    """Return the times of a task's attempts, oldest first, without those whose times are unknown.

    Args:
        task: The task, with the usage of its attempts.
        now_ms: Current Unix time, the end of a running attempt.
    """
    found = []
    for use in task.usage:
        number = int(use.attempt_id.rpartition(":")[2])
        # Of the last one the task says it, unless it waits for the next.
        if use.began_at_ms and (number < task.attempt or not task.started_at_ms):
            found.append(AttemptTimes(number, use.began_at_ms, max(use.at_ms, use.began_at_ms)))
    if task.started_at_ms:
        end_ms = max(task.finished_at_ms or now_ms, task.started_at_ms)
        found.append(AttemptTimes(task.attempt, task.started_at_ms, end_ms))
    return found


@dataclass(frozen=True, slots=True)
class Timeline:
    """Tasks over time.

    Attributes:
        bars: The tasks that have started, by number.
        ticks: Marks of the axis: their place, in percent, and the time since its start.
    """

    bars: dict[str, Bar]
    ticks: tuple[tuple[float, str], ...]


def timeline_of(tasks: Sequence[pb.TaskStatus], now_ms: int, since_ms: int = 0, until_ms: int = 0) -> Timeline:
    """Return the bars of the tasks that have started, on one axis.

    Args:
        tasks: The tasks.
        now_ms: Current Unix time, the end of running attempts.
        since_ms: The axis begins here or earlier; 0 for the first start.
        until_ms: The axis ends here or later.
    """
    known = [(task, times) for task in tasks if (times := attempts_in_time(task, now_ms))]
    if not known:
        return Timeline({}, ())
    begins = [each.begin_ms for _, times in known for each in times]
    first = min([*begins, since_ms] if since_ms else begins)
    whole = max(max(each.end_ms for _, times in known for each in times), until_ms) - first
    bars = [_bar(task, times, first, max(whole, 1)) for task, times in known]
    return Timeline({bar.label: bar for bar in bars}, _ticks(whole / 1000))


def _ticks(seconds: float) -> tuple[tuple[float, str], ...]:
    step, size, word = next(
        (each for each in _STEPS if each[0] * each[1] * _MOST_TICKS >= seconds), (seconds // _DAY // 5 + 1, _DAY, "d")
    )
    count = int(seconds / (step * size)) + 1 if seconds > 0 else 1
    found = [(100 * number * step * size / max(seconds, 1e-9), f"{number * step:g} {word}") for number in range(count)]
    return ((0.0, "0"), *found[1:])


def _bar(task: pb.TaskStatus, times: Sequence[AttemptTimes], first_ms: int, whole_ms: int) -> Bar:
    state = pb.TaskState.Name(task.state).removeprefix("TASK_STATE_").lower()
    spans = []
    for each in times:
        is_last = each.number == task.attempt and task.started_at_ms > 0
        seconds = (each.end_ms - each.begin_ms) / 1000
        cause = task.causes[each.number] if each.number < len(task.causes) else state
        left = 100 * (each.begin_ms - first_ms) / whole_ms
        width = max(100 * (each.end_ms - each.begin_ms) / whole_ms, 0.5)
        words = f"attempt {each.number}, {seconds:.1f} s: {cause.split(': ', 1)[-1]}"
        earlier = "preempted" if not task.failures or (task.preemptions and "preempt" in cause) else "earlier"
        spans.append(Span(each.number, state if is_last else earlier, left, width, words))
    last = times[-1]
    seconds = (last.end_ms - last.begin_ms) / 1000
    return Bar(task.task_id.rpartition("/")[2], state, seconds, max(task.attempt, 0), tuple(spans))
