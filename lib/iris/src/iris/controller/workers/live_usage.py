"""The resource use of running attempts, reported every few seconds. Kept in memory and saved periodically."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from iris.controller.engine.engine import Engine
from iris.controller.engine.transaction import Transaction
from iris.controller.workers.usage_history import UsageHistory
from iris.domain.events import AttemptObserved
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, parse_attempt_id, parse_task_id, task_id
from iris.domain.usage import AttemptUse, Usage
from rigging.errors import MarinError

logger = logging.getLogger(__name__)

SAVE_EVERY_S: Final = 30.0
"""Interval between saves: the usage that is lost if controller and worker are lost together."""
SHORT_MS: Final = 10_000


class LiveUsage:
    """The latest report of every running attempt. The usage of ended attempts is stored with their end.

    Args:
        engine: Writes the saved reports, and has the view.
        stored: Reads the stored use of the attempts of a job's tasks, from an index to an index.
        history: The series of tasks.
    """

    def __init__(
        self,
        engine: Engine,
        stored: Callable[[JobId, int, int], Mapping[AttemptId, AttemptUse]],
        history: UsageHistory,
    ) -> None:
        self.history = history
        self._engine = engine
        self._stored = stored
        self._known: dict[AttemptId, AttemptUse] = {}
        self._of_task: dict[TaskId, list[AttemptId]] = {}
        self._unsaved: dict[AttemptId, AttemptUse] = {}

    def note(self, name: AttemptId, worker_id: WorkerId, usage: Usage) -> None:
        """Record a worker's report about an attempt; ignore reports about other workers' attempts.

        Args:
            name: The attempt.
            worker_id: The worker.
            usage: The attempt's use.
        """
        booking = self._engine.view.bookings.get(name)
        if booking is not None and booking.worker_id == worker_id:
            task, number = self._engine.view.find_attempt(name)
            began = task.started_at_ms if task is not None and task.attempt == number else 0
            if name not in self._known:
                self._of_task.setdefault(parse_attempt_id(name)[0], []).append(name)
            mean = 0 if task is None else self.history.note(task, number, began, usage)
            noted = replace(usage, began_at_ms=began, memory_mean_bytes=mean)
            self._known[name] = self._unsaved[name] = AttemptUse(worker_id, noted)

    def finish(self, event: AttemptObserved) -> AttemptObserved:
        """Return a report of an attempt's end with the average of its memory. The series includes the end."""
        usage, booking = event.usage, self._engine.view.bookings.get(event.attempt_id)
        if usage is None or booking is None or booking.worker_id != event.worker_id:
            return event
        task, number = self._engine.view.find_attempt(event.attempt_id)
        # Very many short attempts have no series.
        if task is None or not (self.history.is_noted(task) or usage.at_ms - event.started_at_ms > SHORT_MS):
            return event
        mean = self.history.note(task, number, event.started_at_ms, usage)
        return replace(event, usage=replace(usage, memory_mean_bytes=mean))

    def of_attempt(self, name: AttemptId) -> AttemptUse | None:
        """Return the latest report about a running attempt, or None."""
        return self._known.get(name)

    def of_tasks(self, job_id: JobId, first: int, last: int) -> dict[AttemptId, AttemptUse]:
        """Return the use of each attempt of tasks `first` to `last`, in the order of tasks and attempts."""
        found, bookings = dict(self._stored(job_id, first, last)), self._engine.view.bookings
        for index in range(first, last + 1):
            for name in self._of_task.get(task_id(job_id, index), ()):
                if name in bookings:
                    use, before = self._known[name], found.get(name)
                    found[name] = use if before is None else AttemptUse(use.worker_id, before.usage.later(use.usage))
        return dict(sorted(found.items(), key=lambda item: _place(item[0])))

    def by_worker(self) -> dict[WorkerId, tuple[int, int]]:
        """Return the CPU (thousandths of a core) and memory (bytes) that the attempts on each worker use now."""
        used: dict[WorkerId, tuple[int, int]] = {}
        for name, use in self._known.items():
            if name in self._engine.view.bookings:
                cpu, memory = used.get(use.worker_id, (0, 0))
                used[use.worker_id] = (cpu + use.usage.cpu_millis, memory + use.usage.memory_bytes)
        return used

    def save(self, transaction: Transaction) -> None:
        """Save new reports of running attempts with the next commit. Reports of ended attempts are already stored."""
        bookings = transaction.view.bookings
        unsaved, self._unsaved = self._unsaved, {}
        self._known = {name: use for name, use in self._known.items() if name in bookings}
        self._of_task = {}
        for name in self._known:
            self._of_task.setdefault(parse_attempt_id(name)[0], []).append(name)
        written = transaction.batch.changes.usage
        for name, use in unsaved.items():
            if name in bookings and name not in written:
                written[name] = use

    async def run(self) -> None:
        """Save periodically until cancelled."""
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            if self._unsaved:
                try:
                    await self._engine.decide(self.save)
                except MarinError:
                    logger.exception("what attempts have used could not be saved")


def _place(name: AttemptId) -> tuple[int, int]:
    task_id, number = parse_attempt_id(name)
    return parse_task_id(task_id)[1], number
