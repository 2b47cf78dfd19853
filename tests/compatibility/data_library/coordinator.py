"""The coordinator: an actor that hands out tasks, and knows which workers are alive."""

import threading
from collections import Counter, deque
from dataclasses import dataclass, replace

from rigging.timing import Timestamp


class PipelineFailed(RuntimeError):
    """A pipeline that no user's function has failed."""


@dataclass(frozen=True)
class Progress:
    """How far a stage is. `counters` are those of finished tasks and of what workers have told of running ones."""

    done: int
    total: int
    workers: int
    lost: int
    counters: Counter


class Coordinator:
    """Hands out the tasks of one stage at a time; serves several calls at once.

    Workers are known by "{index}/{life}": another life of the same index says that the one before is dead.
    """

    def __init__(self, heartbeat_timeout, max_attempts):
        self._timeout_ms = heartbeat_timeout * 1000
        self._max_attempts = max_attempts
        self._changed = threading.Condition()
        self._waiting = deque()
        self._running = {}  # worker -> Task
        self._results = {}
        self._beats = {}  # worker -> Timestamp
        self._live_counters = {}
        self._total = 0
        self._lost = 0
        self._failure = None
        self._finished = False

    # ---- the driver's calls ----

    def run_stage(self, tasks):
        """Return the results of all tasks; raises the first error of a user's function."""
        with self._changed:
            self._results = {}
            self._total = len(tasks)
            self._waiting.extend(tasks)
            while len(self._results) < self._total and self._failure is None and not self._finished:
                self._changed.wait(timeout=self._timeout_ms / 4000)
                self._drop_silent_workers()
            if self._failure is not None:
                raise self._failure
            if self._finished:
                raise PipelineFailed("the run was ended")
            return list(self._results.values())

    def progress(self):
        with self._changed:
            counters = sum((result.counters for result in self._results.values()), Counter())
            for told in self._live_counters.values():
                counters.update(told)
            return Progress(len(self._results), self._total, len(self._beats), self._lost, counters)

    def finish(self):
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    # ---- the workers' calls ----

    def register(self, worker):
        with self._changed:
            index = worker.partition("/")[0]
            for before in [known for known in self._beats if known.partition("/")[0] == index]:
                self._drop(before)
            self._beats[worker] = Timestamp.now()

    def heartbeat(self, worker, counters):
        with self._changed:
            if worker in self._beats:
                self._beats[worker] = Timestamp.now()
                self._live_counters[worker] = counters

    def next_task(self, worker):
        """A task; "wait" when there is none now; "stop" for a worker that is not wanted any more."""
        with self._changed:
            if self._finished or worker not in self._beats:
                return "stop"
            self._beats[worker] = Timestamp.now()
            if not self._waiting or self._failure is not None:
                return "wait"
            task = self._running[worker] = self._waiting.popleft()
            return task

    def report(self, worker, key, result):
        with self._changed:
            if not self._runs(worker, key):
                return  # taken for lost meanwhile, and given to another
            del self._running[worker]
            self._live_counters.pop(worker, None)
            if result.error is not None:
                self._fail(result.error)
            else:
                self._results[result.shard] = result
            self._changed.notify_all()

    def report_broken(self, worker, key, reason):
        """A task failed, but not by a user's function."""
        with self._changed:
            if self._runs(worker, key):
                self._try_again(self._running.pop(worker), reason)

    # ---- with the lock held ----

    def _runs(self, worker, key):
        return worker in self._running and self._running[worker].key == key

    def _drop_silent_workers(self):
        for worker, beat in list(self._beats.items()):
            if beat.age_ms() > self._timeout_ms:
                self._drop(worker)

    def _drop(self, worker):
        del self._beats[worker]
        self._live_counters.pop(worker, None)
        self._lost += 1
        task = self._running.pop(worker, None)
        if task is not None:
            self._try_again(task, f"worker {worker} was lost")

    def _try_again(self, task, reason):
        attempt = task.attempt + 1
        if attempt >= self._max_attempts:
            self._fail(PipelineFailed(f"{task.name} failed {attempt} times; the last time: {reason}"))
        else:
            self._waiting.appendleft(replace(task, attempt=attempt))
        self._changed.notify_all()

    def _fail(self, error):
        if self._failure is None:
            self._failure = error
        self._waiting.clear()
