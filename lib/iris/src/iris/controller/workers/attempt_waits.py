"""Readable reasons of workers why attempts have not started yet. Kept only in memory."""

from dataclasses import dataclass, field
from typing import Final

from iris.core.state.view import ClusterView
from iris.domain.ids import AttemptId, JobId
from iris.domain.states import TaskState

_LONGEST: Final = 300
_MOST: Final = 10_000


@dataclass(slots=True)
class AttemptWaits:
    """Keeps each reason until the worker changes it or the attempt can no longer start.

    Args:
        view: The cluster.
    """

    view: ClusterView
    _words: dict[AttemptId, str] = field(default_factory=dict)

    def note(self, attempt: AttemptId, words: str) -> None:
        """Record why an attempt waits; "" if it does not wait."""
        if not words:
            self._words.pop(attempt, None)
        elif len(self._words) < _MOST:
            self._words[attempt] = words[:_LONGEST]

    def of_attempt(self, attempt: AttemptId) -> str:
        """Return why an attempt waits; "" if no reason is known."""
        words = self._words.get(attempt, "")
        if not words:
            return ""
        task, number = self.view.find_attempt(attempt)
        if task is not None and number == task.attempt:
            if task.state is TaskState.BUILDING:
                return f"on worker {task.worker_id}: {words}"
            if task.state is TaskState.ASSIGNED:  # that it is building is not decided on yet
                return ""
        del self._words[attempt]  # it was lost, or stopped
        return ""

    def of_job(self, job_id: JobId) -> str:
        """Return why the first waiting attempt of a job waits."""
        if not self._words:
            return ""
        prefix = f"{job_id}/"
        of_it = [name for name in self._words if name.startswith(prefix) and "/" not in name[len(prefix) :]]
        return next((words for name in of_it if (words := self.of_attempt(name))), "")
