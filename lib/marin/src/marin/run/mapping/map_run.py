"""One running call of `map_files`."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue

from fray import Client, Entrypoint, JobHandle, JobRequest, JobStatus
from fray.errors import ActorLost
from fray.waiting import wait_context, wait_hook
from marin.run.mapping.hosted_queue import HostedQueue
from marin.run.mapping.manifest import Manifest
from marin.run.mapping.outputs import remove_abandoned
from marin.run.mapping.result import MapFilesResult
from marin.run.mapping.state import EndedWorker, FileStatus, FileTask, QueueRules, QueueUpdate
from marin.run.mapping.worker import FileFunction, WorkerOptions, run_worker
from rigging.errors import JobFailed
from rigging.filesystem import local_path

logger = logging.getLogger(__name__)

_LONGEST_WAIT = 0.2
_TAKING_SECONDS = 0.1
_LOG_SECONDS = 10.0
_MOST_STILLBORN = 3
_MOST_LOST_QUEUES = 10
_MOST_SHOWN_FAILURES = 5
_MOST_REASON_CHARACTERS = 300


@dataclass(slots=True)
class MapRun:
    """Run one call of `map_files`: feed the queue, keep workers running, record finished files.

    Attributes:
        open_queue: Opens a queue by name.
        shortest_wait: The first polling interval of the queue in seconds. It grows.
        ending_seconds: Seconds for workers to end by themselves.
    """

    client: Client
    fn: FileFunction
    request: JobRequest
    rules: QueueRules
    tasks: Iterator[FileTask]
    result: MapFilesResult
    manifest: Manifest | None
    on_progress: Callable[[MapFilesResult], object]
    serial: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    exhausted: bool = False
    queue: HostedQueue | None = None
    workers: dict[str, JobHandle] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    started: int = 0
    stillborn: int = 0
    queues_made: int = 0
    lost_queues: int = 0
    # What the queue has and has not told finished: it can be lost.
    unfinished: dict[int, FileTask] = field(default_factory=dict)
    to_send: list[FileTask] = field(default_factory=list)
    ended: SimpleQueue[str] = field(default_factory=SimpleQueue)
    pause: float = 0.01
    logged_at: float = field(default_factory=time.monotonic)
    open_queue: Callable[[Client, str, QueueRules], HostedQueue] = HostedQueue
    shortest_wait: float = 0.01
    ending_seconds: float = 5.0

    def work(self) -> None:
        """Run until all files are finished."""
        self._take(2 * self.rules.workers)
        while self.unfinished or not self.exhausted:
            try:
                update = self._sync()
            except ActorLost as error:
                self._start_over(error)
                continue
            self._note(update)
            self._take(update.wanted)
            self._start_workers(update.pending + len(self.to_send))
            if not self.to_send:
                self._wait()

    def stop(self, at_once: bool) -> None:
        """End the workers and the queue. Workers finish their files first, unless the stop is immediate."""
        came = self.queue.close() if self.queue is not None else frozenset()
        self.queue = None
        deadline = time.monotonic() + (0.0 if at_once else self.ending_seconds)
        for name in [name for name in self.workers if at_once or name not in came]:
            self.workers.pop(name).terminate()
        while self.workers and time.monotonic() < deadline:
            self._wait()
            while not self.ended.empty():
                self.workers.pop(self.ended.get(), None)
        for handle in self.workers.values():
            handle.terminate()
        self.workers.clear()

    def _take(self, wanted: int) -> None:
        """Take up to that many inputs, but return after a moment, because workers are waiting."""
        if self.exhausted or wanted <= 0:
            return
        deadline = time.monotonic() + _TAKING_SECONDS
        for task in islice(self.tasks, wanted):
            self._clear_folder(task)
            self.to_send.append(task)
            self.unfinished[task.number] = task
            self.result.total += 1
            if time.monotonic() > deadline:
                return
        self.exhausted = len(self.to_send) < wanted

    def _clear_folder(self, task: FileTask) -> None:
        """Remove leftovers of a killed run's workers beside a local output, before this run writes there."""
        path = local_path(task.output)
        folder = "" if path is None else os.path.dirname(path)
        if folder and folder not in self.folders:
            self.folders.add(folder)
            remove_abandoned(folder)

    def _sync(self) -> QueueUpdate:
        if self.queue is None:
            name = f"{self.request.name}-{self.serial}-queue-{self.queues_made}"
            self.queue = self.open_queue(self.client, name, self.rules)
            self.queues_made += 1
        ended: list[EndedWorker] = []
        while not self.ended.empty():
            worker = self.ended.get()
            if (handle := self.workers.get(worker)) is not None:
                status = handle.status()
                reason = str(_cause_of(handle)).partition("\n")[0] if status is JobStatus.FAILED else ""
                ended.append(EndedWorker(worker, status is JobStatus.STOPPED, reason[:_MOST_REASON_CHARACTERS]))
        update = self.queue.sync(self.to_send, self.exhausted, ended)
        self.to_send = []
        self._bury(ended, update)
        return update

    def _bury(self, ended: list[EndedWorker], update: QueueUpdate) -> None:
        for worker in ended:
            handle = self.workers.pop(worker.name)
            if worker.name not in update.stillborn or handle.status() is JobStatus.SUCCEEDED:
                continue
            self.stillborn += 1
            if self.stillborn >= _MOST_STILLBORN:
                raise _cause_of(handle)

    def _note(self, update: QueueUpdate) -> None:
        for file in update.finished:
            if self.unfinished.pop(file.task.number, None) is None:
                continue
            self.result.count(file)
            if file.status is FileStatus.FAILED and self.result.failed <= _MOST_SHOWN_FAILURES:
                logger.warning("%s failed: %s\n%s", file.task.input, file.error, file.trace)
        if update.finished:
            self.lost_queues = self.stillborn = 0
            if self.manifest is not None:
                self.manifest.add(update.finished)
            self.pause = self.shortest_wait
        self.on_progress(self.result)
        if time.monotonic() - self.logged_at > _LOG_SECONDS:
            self.logged_at = time.monotonic()
            logger.info("%s: %s so far, %d workers", self.request.name, self.result, len(self.workers))

    def _start_workers(self, pending: int) -> None:
        assert self.queue is not None
        missing = min(self.rules.workers, len(self.unfinished)) - len(self.workers) if pending else 0
        for _ in range(missing):
            name = f"{self.request.name}-{self.serial}-{self.started}"
            self.started += 1
            options = WorkerOptions(self.queue.name, name, self.rules.batch_seconds)
            entrypoint = Entrypoint.from_callable(run_worker, [self.queue.handle, options, self.fn])
            handle = self.client.submit(replace(self.request, name=name, entrypoint=entrypoint), adopt_existing=False)
            self.workers[name] = handle
            handle.add_done_callback(partial(self._note_end, name))

    def _note_end(self, worker: str, _: JobHandle) -> None:
        self.ended.put(worker)

    def _wait(self) -> None:
        """Wait until a worker's job ends, or for a growing interval. This job lends its resources to its children
        meanwhile.
        """
        self.pause = min(1.5 * self.pause, _LONGEST_WAIT)
        block = wait_hook()
        with wait_context():
            if block is not None:
                block(list(self.workers.values()), self.pause)
                return
            try:
                self.ended.put(self.ended.get(timeout=self.pause))
            except Empty:
                return

    def _start_over(self, error: ActorLost) -> None:
        """Replace a lost queue, whose workers end. The new queue gets all files not known to be finished."""
        self.lost_queues += 1
        if self.lost_queues > _MOST_LOST_QUEUES:
            raise error
        logger.warning("%s: the queue is lost, restarting it: %s", self.request.name, error)
        self.stop(at_once=True)
        self.ended = SimpleQueue()
        self.to_send = list(self.unfinished.values())


def _cause_of(handle: JobHandle) -> BaseException:
    """Return why a worker's job failed."""
    try:
        handle.wait()
    except Exception as error:
        return error
    return JobFailed(f"worker {handle.job_id} ended before it asked for work")
