"""An observer of runs and a client of jobs that record their calls."""

from typing import Any

from fray.client import JobHandle
from fray.local_backend import LocalClient
from fray.types import JobRequest
from marin.execution.report.events import RunEvent, StepEnd, StepEnded


class Recorder:
    """An observer that records the events of a run, in order."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def on_event(self, event: RunEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def ends(self) -> dict[str, StepEnd]:
        return {event.name: event.status for event in self.of(StepEnded)}


class RecordingClient(LocalClient):
    """A client that runs jobs in threads and records requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[JobRequest] = []

    def submit(self, request: JobRequest, adopt_existing: bool = True) -> JobHandle:
        self.requests.append(request)
        return super().submit(request, adopt_existing)
