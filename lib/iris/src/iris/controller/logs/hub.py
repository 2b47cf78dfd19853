"""Connects logs with their jobs: accepts data from workers, and wakes readers."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from iris.controller.logs.lines import start_of_line
from iris.controller.logs.searcher import Searchers
from iris.controller.logs.store import LogKey, LogStore
from iris.core.state.view import ClusterView
from iris.domain.effects import Effect, JobChanged, JobForgotten, JobSettled
from iris.domain.ids import AttemptId, JobId, TaskId, WorkerId, attempt_id, parent_of, task_id
from iris.domain.states import JobState
from rigging.results import pack_problem

logger = logging.getLogger(__name__)

_EXCEPTION_BYTES: Final = 64 * 1024
_AT_ONCE: Final = 200  # logs in one turn; 100,000 would hold up everybody for seconds


class Subscription:
    """Collects the grown logs of a scope for one reader. Changes of the scope's jobs also wake the reader."""

    def __init__(self, job_id: JobId, include_children: bool) -> None:
        self.job_id = job_id
        self.include_children = include_children
        self._grown: set[LogKey] = set()
        self._wake = asyncio.Event()

    def mark(self, log: LogKey | None) -> None:
        """Wake the reader, because `log` has grown, or (None) because the job has changed."""
        if log is not None:
            self._grown.add(log)
        self._wake.set()

    def take(self) -> set[LogKey]:
        """Return the logs marked since the last call."""
        taken, self._grown = self._grown, set()
        self._wake.clear()
        return taken

    async def wait(self) -> None:
        """Wait until something is marked."""
        await self._wake.wait()


class LogHub:
    """The logs of the jobs in the view.

    Args:
        searchers: Processes that search logs and read remote ones.
    """

    def __init__(self, view: ClusterView, store: LogStore, searchers: Searchers | None = None) -> None:
        self.view = view
        self.store = store
        self.searchers = searchers or Searchers(str(store.root))
        self._subscriptions: dict[JobId, set[Subscription]] = {}
        self._replaced: set[JobId] = set()

    def attempt_size(self, attempt: AttemptId) -> int:
        """Return the stored bytes of an attempt's log; 0 for an unknown attempt."""
        key = self._key(attempt)
        return 0 if key is None else self.store.size(key)

    def append(self, attempt: AttemptId, offset: int, data: bytes, worker: WorkerId | None = None) -> int:
        """Store new data, and return the offset from which the worker should continue.

        Data of an unknown or forgotten attempt, or of another worker's, is dropped and counts as stored.

        Args:
            attempt: The attempt.
            offset: The offset of the first byte of `data` in the log.
            data: Whole records.
            worker: The sending worker; None for a trusted caller.
        """
        key = self._key(attempt)
        if key is None or not self._may_tell(attempt, worker):
            return offset + len(data)
        before = self.store.size(key)
        size = self.store.append(key, offset, data)
        if size > before:
            self._notify(JobId(key[0]), key)
        return size

    def keep_exception(self, attempt: AttemptId, worker: WorkerId, data: bytes) -> None:
        """Store the exception of an attempt's callable, if this worker owns the attempt and it is not too large.

        Args:
            attempt: The attempt.
            worker: The worker that reports it.
            data: The pickled exception.
        """
        key, booking = self._key(attempt), self.view.bookings.get(attempt)
        if key is not None and booking is not None and booking.worker_id == worker and len(data) <= _EXCEPTION_BYTES:
            self.store.keep_exception(key, data)

    def keep_result(self, attempt: AttemptId, worker: WorkerId, data: bytes | Path) -> None:
        """Store the result of an attempt's callable, if this worker owns the attempt.

        Args:
            attempt: The attempt.
            worker: The worker that reports it.
            data: The packed value, or the file that contains it.
        """
        key, booking = self._key(attempt), self.view.bookings.get(attempt)
        if key is None or booking is None or booking.worker_id != worker:
            return
        try:
            if isinstance(data, Path):
                self.store.keep_result_file(key, data)
            else:
                self.store.keep_result(key, data)
        except OSError as error:
            logger.warning("what %s returned is not kept: %s", attempt, error)
            reason = "it has gone from there" if isinstance(error, FileNotFoundError) else error.strerror
            with contextlib.suppress(OSError):
                self.store.keep_result(key, pack_problem(f"the controller could not keep it: {reason}"))

    def result(self, task_id: TaskId, offset: int, most: int) -> tuple[bytes, int]:
        """Return a part of the result of the task's last attempt, and the result's total size; 0 for None.

        Args:
            task_id: The task.
            offset: The offset of the first byte.
            most: Maximum number of bytes to return.
        """
        task = self.view.task(task_id)
        return self.store.read_result((task.job_id, task.index, task.attempt), offset, most)

    def exception(self, task_id: TaskId) -> bytes:
        """Return the pickled exception of the task's last attempt; empty if none is known."""
        task = self.view.task(task_id)
        return self.store.exception((task.job_id, task.index, task.attempt))

    def keys(self, job_id: JobId) -> list[LogKey]:
        """Return the logs of the current job with this name."""
        job = self.view.jobs.get(job_id)
        first = 0 if job is None else job.first_attempt
        return [key for key in self.store.keys(job_id) if key[2] >= first]

    def start_of_line(self, key: LogKey, number: int) -> tuple[int, int] | None:
        """Return where to start reading for a line of a log (`iris.controller.logs.lines`); None if unknown."""
        return start_of_line(self.store.log(key), number) if key in self.keys(JobId(key[0])) else (0, 1)

    def is_known(self, key: LogKey) -> bool:
        """Return whether the attempt exists: False if its job is removed or replaced, or its number is not yet
        assigned.
        """
        job = self.view.jobs.get(JobId(key[0]))
        if job is None or key[2] < job.first_attempt:
            return False
        task, _ = self.view.find_attempt(attempt_id(task_id(JobId(key[0]), key[1]), key[2]))
        return task is None or key[2] <= task.attempt

    def descendants(self, job_id: JobId) -> list[JobId]:
        """Return the jobs below `job_id`, live or ended, that have a log."""
        # Looked for where they are: as many jobs as a controller remembers are not searched for a few children.
        stored = map(JobId, self.store.stored_jobs(job_id))
        return [other for other in stored if other != job_id and other in self.view.jobs]

    def is_complete(self, job_id: JobId, include_children: bool) -> bool:
        """Return whether the logs are final: the job (with its descendants) has ended and no worker has its attempts
        any more.
        """
        job = self.view.jobs.get(job_id)
        if job is not None and not self.view.is_settled(job_id):
            return False
        if not include_children:
            return True
        prefix = job_id + "/"
        busy = any(other.startswith(prefix) for other in self.view.stopping_counts)
        return not busy and job_id not in self.view.children

    def subscribe(self, job_id: JobId, include_children: bool) -> Subscription:
        subscription = Subscription(job_id, include_children)
        self._subscriptions.setdefault(job_id, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        others = self._subscriptions.get(subscription.job_id)
        if others is not None:
            others.discard(subscription)
            if not others:
                del self._subscriptions[subscription.job_id]

    def is_followed(self, job_id: JobId) -> bool:
        """Return whether a reader follows the logs of this job or an ancestor."""
        current: JobId | None = job_id if self._subscriptions else None
        while current is not None:
            if current in self._subscriptions:
                return True
            current = parent_of(current)
        return False

    def on_effects(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, JobChanged):
                self._notify(effect.job_id)
                job = self.view.jobs[effect.job_id]
                if job.first_attempt and job.state is JobState.PENDING:
                    self._remove_replaced(job.job_id)
            elif isinstance(effect, JobSettled):
                self._notify(effect.job_id)
                self._settle(effect.job_id, self.store.settling(effect.job_id))
            elif isinstance(effect, JobForgotten):
                self.store.remove(effect.job_id)

    def _settle(self, job_id: JobId, steps: Iterator[None]) -> None:
        """Finish the logs of an ended job, in steps over several turns of the loop."""
        # Forgotten since, or its name is used again: then its next end settles them.
        is_over = job_id not in self.view.jobs or not self.view.is_settled(job_id)
        if not is_over and sum(1 for _ in islice(steps, _AT_ONCE)) == _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._settle, job_id, steps)

    def _remove_replaced(self, job_id: JobId) -> None:
        """Remove the logs of an ended job whose name was reused, in steps over several turns of the loop.

        The logs are hidden meanwhile. If the controller exits, the rest is removed with the job's history.
        """
        job = self.view.jobs.get(job_id)
        # Already on its way, or forgotten with all of its logs since.
        if job is None or job_id in self._replaced:
            return
        if self.store.remove_below(job_id, job.first_attempt, _AT_ONCE):
            self._replaced.add(job_id)
            asyncio.get_running_loop().call_soon(self._go_on_removing, job_id)

    def _go_on_removing(self, job_id: JobId) -> None:
        self._replaced.discard(job_id)
        self._remove_replaced(job_id)

    def _key(self, attempt: AttemptId) -> LogKey | None:
        task, number = self.view.find_attempt(attempt)
        if task is None or number > task.attempt or number < self.view.jobs[task.job_id].first_attempt:
            return None
        return task.job_id, task.index, number

    def _may_tell(self, attempt: AttemptId, worker: WorkerId | None) -> bool:
        """Return whether this worker may report on an attempt: False if the attempt belongs to another worker."""
        task, number = self.view.find_attempt(attempt)
        if worker is None or task is None or task.attempt != number or task.worker_id in (None, worker):
            return True
        logger.warning("worker %s sends output of %s, which is worker %s's: dropped", worker, attempt, task.worker_id)
        return False

    def _notify(self, job_id: JobId, log: LogKey | None = None) -> None:
        if not self._subscriptions:
            return
        for subscription in self._subscriptions.get(job_id, ()):
            subscription.mark(log)
        above = parent_of(job_id)
        while above is not None:
            for subscription in self._subscriptions.get(above, ()):
                if subscription.include_children:
                    subscription.mark(log)
            above = parent_of(above)
