"""The events that observers of a run are told of (see `marin.execution.report.events`)."""

from marin.execution.report.events import (
    RunEnded,
    RunEvent,
    RunObserver,
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepQueued,
    StepStarted,
)

__all__ = [
    "RunEnded",
    "RunEvent",
    "RunObserver",
    "RunStarted",
    "StepEnd",
    "StepEnded",
    "StepJobQueued",
    "StepQueued",
    "StepStarted",
]
