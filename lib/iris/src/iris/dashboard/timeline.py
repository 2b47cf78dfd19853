"""Tasks as bars over time, their earlier attempts before them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iris.rpc.generated import iris_pb2 as pb


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt of a task.

    Attributes:
        attempt: Its number.
        state: The word of its state; "earlier": it ended, and another came after it.
        left: Where it begins, in percent of the whole width.
        width: How wide it is, in percent.
        words: Of what it tells: its number, how long it ran, why it ended.
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
        state: Its state's word.
        seconds: How long its present or last attempt ran.
        earlier: So many attempts came before.
        spans: Its attempts, the oldest first, as far as it is known when they ran.
    """

    label: str
    state: str
    seconds: float
    earlier: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """When an attempt ran.

    Attributes:
        number: Its number.
        begin_ms: Unix time.
        end_ms: Unix time; of one that runs, now.
    """

    number: int
    begin_ms: int
    end_ms: int


def attempts_in_time(task: pb.TaskStatus, now_ms: int) -> list[AttemptTimes]:
    """Return when the attempts of a task ran, the oldest first; those of which that is not known are left out.

    Args:
        task: With what its attempts used.
        now_ms: Unix time, up to which a running one reaches.
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


def timeline_of(tasks: Sequence[pb.TaskStatus], now_ms: int) -> list[Bar]:
    """Return the bars of those tasks that have begun.

    Args:
        tasks: The tasks.
        now_ms: Unix time, up to which running ones reach.
    """
    known = [(task, times) for task in tasks if (times := attempts_in_time(task, now_ms))]
    if not known:
        return []
    first = min(each.begin_ms for _, times in known for each in times)
    whole = max(max(each.end_ms for _, times in known for each in times) - first, 1)
    return [_bar(task, times, first, whole) for task, times in known]


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
        spans.append(Span(each.number, state if is_last else "earlier", left, width, words))
    last = times[-1]
    seconds = (last.end_ms - last.begin_ms) / 1000
    return Bar(task.task_id.rpartition("/")[2], state, seconds, max(task.attempt, 0), tuple(spans))
