"""Logs and the jobs they belong to: what is accepted from workers, and who wakes when there is more to read."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

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
    """Collects the logs of a scope that have grown, until they are taken, and wakes for its jobs' changes, too."""

    def __init__(self, job_id: JobId, include_children: bool) -> None:
        self.job_id = job_id
        self.include_children = include_children
        self._grown: set[LogKey] = set()
        self._wake = asyncio.Event()

    def mark(self, log: LogKey | None) -> None:
        """Wake the reader; `log` has something new, None: it is the job that has changed."""
        if log is not None:
            self._grown.add(log)
        self._wake.set()

    def take(self) -> set[LogKey]:
        """The logs marked since the last call."""
        taken, self._grown = self._grown, set()
        self._wake.clear()
        return taken

    async def wait(self) -> None:
        """Return when something is marked."""
        await self._wake.wait()


class LogHub:
    """The logs of the jobs in the view.

    Args:
        searchers: Processes that read what the controller does not read itself.
    """

    def __init__(self, view: ClusterView, store: LogStore, searchers: Searchers | None = None) -> None:
        self.view = view
        self.store = store
        self.searchers = searchers or Searchers(str(store.root))
        self._subscriptions: dict[JobId, set[Subscription]] = {}
        self._replaced: set[JobId] = set()

    def attempt_size(self, attempt: AttemptId) -> int:
        """Bytes held of an attempt's log; 0 for an attempt that is not known."""
        key = self._key(attempt)
        return 0 if key is None else self.store.size(key)

    def append(self, attempt: AttemptId, offset: int, data: bytes, worker: WorkerId | None = None) -> int:
        """Store what is new; return the offset from where the worker should go on.

        For an attempt that is unknown, forgotten or another worker's the data is dropped, and counts as held.

        Args:
            attempt: The attempt.
            offset: Place of the first byte of `data` in the log.
            data: Whole records.
            worker: Who sends it; None: one who may.
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
        """Keep what the callable of an attempt raised: of the one that this worker was given, and not too much.

        Args:
            attempt: The attempt.
            worker: The worker that reports it.
            data: The pickled exception.
        """
        key, booking = self._key(attempt), self.view.bookings.get(attempt)
        if key is not None and booking is not None and booking.worker_id == worker and len(data) <= _EXCEPTION_BYTES:
            self.store.keep_exception(key, data)

    def keep_result(self, attempt: AttemptId, worker: WorkerId, data: bytes | Path) -> None:
        """Keep what the callable of an attempt returned: of the one that this worker was given.

        Args:
            attempt: The attempt.
            worker: The worker that reports it.
            data: The packed value, or the file that has it.
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
        """Return a part of what the task's last attempt returned, and the size of all; 0: it returned None.

        Args:
            task_id: The task.
            offset: Of the first byte.
            most: The most bytes to return.
        """
        task = self.view.task(task_id)
        return self.store.read_result((task.job_id, task.index, task.attempt), offset, most)

    def exception(self, task_id: TaskId) -> bytes:
        """Return the exception of the task's last attempt as its process pickled it; empty: none is known."""
        task = self.view.task(task_id)
        return self.store.exception((task.job_id, task.index, task.attempt))

    def keys(self, job_id: JobId) -> list[LogKey]:
        """The logs of the present job of that name."""
        job = self.view.jobs.get(job_id)
        first = 0 if job is None else job.first_attempt
        return [key for key in self.store.keys(job_id) if key[2] >= first]

    def is_known(self, key: LogKey) -> bool:
        """False if there is no such attempt: its job is forgotten, or of a later life, or its number not given yet."""
        job = self.view.jobs.get(JobId(key[0]))
        if job is None or key[2] < job.first_attempt:
            return False
        task, _ = self.view.find_attempt(attempt_id(task_id(JobId(key[0]), key[1]), key[2]))
        return task is None or key[2] <= task.attempt

    def descendants(self, job_id: JobId) -> list[JobId]:
        """The jobs below `job_id` that have a log, ended or not."""
        # Looked for where they are: as many jobs as a controller remembers are not searched for a few children.
        stored = map(JobId, self.store.stored_jobs(job_id))
        return [other for other in stored if other != job_id and other in self.view.jobs]

    def is_complete(self, job_id: JobId, include_children: bool) -> bool:
        """True if the logs are final: the job (with those below it) has ended and left its workers."""
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
        """True if a reader follows the logs of this job or of one above it."""
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
        """Settle the logs of a job that has ended, some now and the others in later turns."""
        # Forgotten since, or its name is used again: then its next end settles them.
        is_over = job_id not in self.view.jobs or not self.view.is_settled(job_id)
        if not is_over and sum(1 for _ in islice(steps, _AT_ONCE)) == _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._settle, job_id, steps)

    def _remove_replaced(self, job_id: JobId) -> None:
        """Remove the logs of an ended job whose name was used again, some now and the others in later turns.

        Nobody is shown them meanwhile; what an end of the controller leaves goes when the job is forgotten.
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
        """False if an attempt is known to be another worker's."""
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
