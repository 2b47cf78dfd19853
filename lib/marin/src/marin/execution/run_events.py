"""The events that observers of a run receive (see `marin.execution.report.events`)."""

from marin.execution.report.events import (
    AttemptUse,
    RunEnded,
    RunEvent,
    RunObserver,
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepProgressed,
    StepQueued,
    StepRetrying,
    StepStarted,
    StepTimedOut,
)

__all__ = [
    "AttemptUse",
    "RunEnded",
    "RunEvent",
    "RunObserver",
    "RunStarted",
    "StepEnd",
    "StepEnded",
    "StepJobQueued",
    "StepProgressed",
    "StepQueued",
    "StepRetrying",
    "StepStarted",
    "StepTimedOut",
]
