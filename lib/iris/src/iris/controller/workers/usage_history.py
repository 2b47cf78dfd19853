"""The usage of attempts over their whole lives: of running tasks in memory, of all in the store."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from iris.controller.engine.engine import Engine
from iris.core.state.changes import Changes
from iris.domain.entities import Task
from iris.domain.ids import AttemptId, JobId, attempt_id
from iris.domain.usage import Usage
from iris.domain.usage_series import TaskSeries, rows_of
from rigging.errors import MarinError, Unavailable

logger = logging.getLogger(__name__)

TICK_S: Final = 10.0
FIRST_SAVE_MS: Final = 30_000
SAVE_EVERY_MS: Final = 300_000
"""Maximum interval between saves of a running task's series. The interval doubles from `FIRST_SAVE_MS`. The series of
an ended task is saved at the next tick.
"""
_AT_ONCE: Final = 8
_PAUSE_S: Final = 0.02
"""Saves of many tasks leave time for calls in between."""

SeriesRow = tuple[JobId, int, str]


class SeriesStore(Protocol):
    """Stores the packed series of tasks."""

    def save_series(self, rows: Sequence[SeriesRow]) -> None: ...

    def series_of(self, job_id: JobId, index: int) -> str: ...


class NoSeries:
    """Stores nothing, for simulations."""

    def save_series(self, rows: Sequence[SeriesRow]) -> None: ...

    def series_of(self, job_id: JobId, index: int) -> str:
        """Return the empty text."""
        del job_id, index
        return ""


@dataclass(slots=True)
class _Kept:
    series: TaskSeries
    latest: AttemptId
    saved_ms: int
    every_ms: int = FIRST_SAVE_MS
    is_changed: bool = False


class UsageHistory:
    """The series of all tasks. A crash of the controller loses at most five minutes of points, and no totals or peaks.

    Args:
        engine: Has the view.
        store: The store.
        clock_ms: Returns Unix time in milliseconds.
    """

    def __init__(self, engine: Engine, store: SeriesStore, clock_ms: Callable[[], int]) -> None:
        self._engine = engine
        self._store = store
        self._clock_ms = clock_ms
        self._kept: dict[JobId, dict[int, _Kept]] = {}
        engine.listen_to_changes(self._drop)

    def note(self, task: Task, number: int, began_ms: int, usage: Usage) -> int:
        """Add a measurement of an attempt, and return the attempt's average memory in bytes.

        Args:
            task: The task.
            number: The attempt's number.
            began_ms: Start of the attempt (Unix ms); 0 if unknown.
            usage: The measurement.
        """
        of_job = self._kept.setdefault(task.job_id, {})
        kept = of_job.get(task.index)
        name = attempt_id(task.task_id, number)
        if kept is None:
            kept = of_job[task.index] = _Kept(self._load(task), name, self._clock_ms())
        kept.series.add(number, began_ms, usage)
        kept.latest, kept.is_changed = name, True
        return kept.series.memory_mean(number)

    def is_noted(self, task: Task) -> bool:
        """Return whether the task's series is in memory."""
        return task.index in self._kept.get(task.job_id, ())

    def of_task(self, task: Task) -> TaskSeries:
        """Return the series of a task."""
        kept = self._kept.get(task.job_id, {}).get(task.index)
        return self._load(task) if kept is None else kept.series

    async def run(self) -> None:
        """Save periodically until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            for _ in self.save_due():
                await asyncio.sleep(_PAUSE_S)

    def save(self) -> None:
        """Save all changes. Only log a failure."""
        for _ in self.save_due(is_last=True):
            pass

    def save_due(self, is_last: bool = False) -> Iterator[None]:
        """Save the series of ended tasks and those that are due, or all of them. Yield after each few of them."""
        now_ms, bookings = self._clock_ms(), self._engine.view.bookings
        due = [
            (job_id, index)
            for job_id, of_job in self._kept.items()
            for index, kept in of_job.items()
            if is_last or now_ms - kept.saved_ms >= kept.every_ms or kept.latest not in bookings
        ]
        for first in range(0, len(due), _AT_ONCE):
            self._save(due[first : first + _AT_ONCE])
            yield

    def _save(self, due: Iterable[tuple[JobId, int]]) -> None:
        found = [(*key, kept) for key in due if (kept := self._kept.get(key[0], {}).get(key[1])) is not None]
        # The totals of an attempt with a single point are stored with its usage.
        rows = [
            (job_id, index, kept.series.pack())
            for job_id, index, kept in found
            if kept.is_changed and kept.series.is_chart
        ]
        try:
            self._store.save_series(rows)
        except Unavailable:
            logger.exception("the usage of %d tasks over time could not be saved", len(rows))
            return
        now_ms, bookings = self._clock_ms(), self._engine.view.bookings
        for job_id, index, kept in found:
            kept.saved_ms, kept.is_changed = now_ms, False
            kept.every_ms = min(2 * kept.every_ms, SAVE_EVERY_MS)
            if kept.latest not in bookings:
                del self._kept[job_id][index]
                if not self._kept[job_id]:
                    del self._kept[job_id]

    def _load(self, task: Task) -> TaskSeries:
        rows = rows_of(self._engine.view.job(task.job_id).spec.replicas)
        try:
            return TaskSeries.unpack(self._store.series_of(task.job_id, task.index), rows)
        except (ValueError, MarinError):  # charts stop no report of a worker
            logger.exception("the earlier usage of %s over time cannot be read", task.task_id)
            return TaskSeries(rows)

    def _drop(self, changes: Changes) -> None:
        for job_id in (*changes.replaced, *changes.forgotten_jobs):
            self._kept.pop(job_id, None)
