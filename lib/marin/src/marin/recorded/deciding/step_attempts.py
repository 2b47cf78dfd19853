"""The attempts of a step in a run, from the run's events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

OPEN_OUTCOMES: Final = ("queued", "running")
"""The outcome of attempts whose end is not recorded."""


@dataclass(frozen=True, slots=True)
class StepAttempt:
    """One attempt of a step.

    Attributes:
        run: The run's name.
        attempt: Its number in the run, from 1.
        outcome: How it ended: `succeeded`, `failed`, `timed out`, `preempted`, `lost its lease`, `was stopped`. If no
            end is recorded: `queued` or `running`, or `died` (or `was stopped`) with its run.
        seconds: The duration of the function.
        queued_seconds: The time that its job was queued.
        cpu_seconds: Its processor time.
        peak_bytes: Its peak memory.
        error: Its error.
    """

    run: str
    attempt: int
    outcome: str
    seconds: float | None = None
    queued_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    error: str | None = None


def attempts_in(run: str, events: Iterable[Mapping[str, Any]], path: str) -> list[StepAttempt]:
    """Return the attempts of a step in one run, in order; [] if the run did not start the step.

    Args:
        run: The run's name.
        events: Its readable events.
        path: The step's output path.
    """
    found: list[StepAttempt] = []
    state: StepAttempt | None = None
    for event in events:
        if event.get("path") != path:
            continue
        match event.get("event"):
            case "step_job_queued":
                state = StepAttempt(run, len(found) + 1, "queued", error=event.get("reason") or None)
            case "step_started":
                state = StepAttempt(run, len(found) + 1, "running")
            case "step_retrying":
                outcome = str(event.get("outcome", "failed"))
                found.append(StepAttempt(run, len(found) + 1, outcome, event.get("seconds"), error=event.get("error")))
                state = None
            case "step_ended":
                told = event.get("attempts")
                if isinstance(told, list):
                    found = [_told(run, number, each) for number, each in enumerate(told, 1) if isinstance(each, dict)]
                elif event.get("status") in ("succeeded", "failed"):  # by a release that told no more
                    found.append(_told(run, len(found) + 1, {**event, "outcome": event["status"]}))
                state = None
    return [*found, *([state] if state is not None else ())]


def _told(run: str, number: int, attempt: Mapping[str, Any]) -> StepAttempt:
    return StepAttempt(
        run,
        number,
        str(attempt.get("outcome", "-")),
        attempt.get("seconds"),
        attempt.get("queued_seconds"),
        attempt.get("cpu_seconds"),
        attempt.get("peak_bytes"),
        attempt.get("error"),
    )
