"""Tasks as bars over time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iris.rpc import iris_pb2 as pb


@dataclass(frozen=True, slots=True)
class Bar:
    """A task's present or last attempt.

    Attributes:
        label: The task's number.
        state: Its state's word.
        left: Where the bar begins, in percent of the whole width.
        width: How wide it is, in percent.
        seconds: How long it ran.
        earlier: So many attempts came before.
    """

    label: str
    state: str
    left: float
    width: float
    seconds: float
    earlier: int


def timeline_of(tasks: Sequence[pb.TaskStatus], now_ms: int) -> list[Bar]:
    """Return the bars of those tasks that have begun.

    Args:
        tasks: The tasks.
        now_ms: Unix time, up to which running ones reach.
    """
    spans = [(task, task.started_at_ms, max(task.finished_at_ms or now_ms, task.started_at_ms)) for task in tasks]
    spans = [span for span in spans if span[1]]  # those that have begun
    if not spans:
        return []
    first = min(begin for _, begin, _ in spans)
    whole = max(max(end for _, _, end in spans) - first, 1)
    return [
        Bar(
            label=task.task_id.rpartition("/")[2],
            state=pb.TaskState.Name(task.state).removeprefix("TASK_STATE_").lower(),
            left=100 * (begin - first) / whole,
            width=max(100 * (end - begin) / whole, 0.5),
            seconds=(end - begin) / 1000,
            earlier=task.attempt,
        )
        for task, begin, end in spans
    ]
