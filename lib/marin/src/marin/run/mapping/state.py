"""The queue of files as pure state: pending files, assigned files, results. Callers pass in the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

_LEAST_BATCH_SECONDS = 1e-6
_MOST_HELD = 10_000


class FileStatus(StrEnum):
    """The result of one file. `existed` means that the output already existed."""

    SUCCEEDED = "succeeded"
    EXISTED = "existed"
    FAILED = "failed"


class FileTask(NamedTuple):
    """An output to make, with the index of its input."""

    number: int
    input: str
    output: str


class FileReport(NamedTuple):
    """The result of one attempt. `error` is a readable line, `trace` its traceback."""

    number: int
    status: FileStatus
    error: str = ""
    trace: str = ""


class FinishedFile(NamedTuple):
    """The final result of one file."""

    task: FileTask
    status: FileStatus
    error: str
    trace: str


class EndedWorker(NamedTuple):
    """A worker whose job has ended.

    Args:
        preempted: Whether the cause was external, so that its files are not charged.
        reason: The reason, for messages.
    """

    name: str
    preempted: bool = False
    reason: str = ""


class Assignment(NamedTuple):
    """An instruction to a worker: make files, ask again later, or end."""

    tasks: tuple[FileTask, ...] = ()
    stop: bool = False


class QueueUpdate(NamedTuple):
    """News from the queue for the driver.

    Args:
        finished: Files finished since the last update.
        wanted: The number of further files that the queue can take.
        pending: Files that no worker has.
        stillborn: Workers among the reported ended ones that never asked for work.
    """

    finished: tuple[FinishedFile, ...]
    wanted: int
    pending: int
    stillborn: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueRules:
    """The queue's rules for workers.

    Args:
        workers: Maximum number of workers.
        max_retries_failure: Maximum number of retries of a file after the function failed, or a worker failed that had
            only this file.
        max_retries_preemption: Maximum number of retries of a file after its worker was preempted.
        batch_seconds: Target duration of one assignment.
        batch_files: Maximum number of files in one assignment.
    """

    workers: int
    max_retries_failure: int
    max_retries_preemption: int
    batch_seconds: float = 1.0
    batch_files: int = 500


@dataclass(slots=True)
class _Entry:
    task: FileTask
    holder: str | None = None
    leases: int = 0
    failures: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class FileQueue:
    """Assign files to workers and collect their reports. Each file is finished once.

    A worker is a job, identified by name. Each start of its process is another `life`. After a crash of a worker with
    several files, they are assigned one by one, so that only the cause is charged.
    """

    rules: QueueRules
    _entries: dict[int, _Entry] = field(default_factory=dict)
    _pending: deque[int] = field(default_factory=deque)
    _alone: deque[int] = field(default_factory=deque)
    _lives: dict[str, str] = field(default_factory=dict)
    _leases: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _past: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)
    _finished: list[FinishedFile] = field(default_factory=list)
    _exhausted: bool = False
    _file_seconds: float | None = None

    @property
    def held(self) -> int:
        """The number of files that are not finished."""
        return len(self._entries)

    @property
    def pending(self) -> int:
        """The number of files that no worker has."""
        return len(self._pending) + len(self._alone)

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that have asked for work and have not been reported as ended."""
        return tuple(self._lives)

    def exchange(self, worker: str, life: str, reports: Sequence[FileReport], seconds: float) -> Assignment:
        """Take a worker's reports and assign it more files. Assigned files without a report count as not begun.

        Args:
            worker: The worker's name.
            life: The life of its process.
            reports: The results of the last assignment.
            seconds: The total time of these attempts.
        """
        if not self._admit(worker, life):
            for report in reports:
                if report.status is not FileStatus.FAILED:
                    self._finish(report)
            return Assignment(stop=True)
        if reports:
            self._learn(seconds / len(reports))
        self._take_back(life, reports)
        batch = self._choose_batch()
        for number in batch:
            entry = self._entries[number]
            entry.holder = life
            entry.leases += 1
        self._leases[life] = batch
        if batch:
            return Assignment(tuple(self._entries[number].task for number in batch))
        return Assignment(stop=self._exhausted)

    def sync(self, tasks: Sequence[FileTask], exhausted: bool, ended: Sequence[EndedWorker] = ()) -> QueueUpdate:
        """Add the driver's files and ended workers. Return the news since the last call, with each finished file once.

        Args:
            tasks: More files, with unused numbers.
            exhausted: No more files will follow.
            ended: Workers whose jobs have ended. Their files become free; their names do not.
        """
        for task in tasks:
            self._entries[task.number] = _Entry(task)
            self._pending.append(task.number)
        self._exhausted = self._exhausted or exhausted
        stillborn = tuple(worker.name for worker in ended if not self._end_worker(worker))
        finished, self._finished = tuple(self._finished), []
        room = min(self.rules.workers * self._batch_limit() * 2, max(_MOST_HELD, 2 * self.rules.workers))
        return QueueUpdate(finished, max(0, room - self.held), self.pending, stillborn)

    def _end_worker(self, worker: EndedWorker) -> bool:
        self._ended.add(worker.name)
        life = self._lives.pop(worker.name, None)
        if life is None:
            return False
        self._release(life, worker.preempted, worker.reason)
        return True

    def _admit(self, worker: str, life: str) -> bool:
        if worker in self._ended or life in self._past:
            return False
        before = self._lives.get(worker)
        if before is not None and before != life:
            self._release(before, preempted=True)
        self._lives[worker] = life
        return True

    def _learn(self, file_seconds: float) -> None:
        known = self._file_seconds
        self._file_seconds = file_seconds if known is None else (known + file_seconds) / 2

    def _take_back(self, life: str, reports: Sequence[FileReport]) -> None:
        """Free the files of this process: apply the reports, and treat the other files as not begun."""
        held = self._leases.pop(life, ())
        for report in reports:
            if report.status is not FileStatus.FAILED:
                self._finish(report)
            elif (entry := self._entries.get(report.number)) is not None and entry.holder == life:
                entry.failures += 1
                self._retry(entry, self._pending, report)
        for number in reversed(held):
            entry = self._entries.get(number)
            if entry is not None and entry.holder == life:
                entry.holder = None
                entry.leases -= 1
                self._pending.appendleft(number)

    def _release(self, life: str, preempted: bool, reason: str = "") -> None:
        """Handle the end of a process that had files."""
        self._past.add(life)
        numbers = self._leases.pop(life, ())
        entries = [e for n in numbers if (e := self._entries.get(n)) is not None and e.holder == life]
        for entry in entries:
            entry.holder = None
            if preempted:
                entry.preemptions += 1
                self._retry(entry, self._pending, f"its worker was preempted {entry.preemptions} times")
            elif len(numbers) == 1:
                entry.failures += 1
                why = f": {reason}" if reason else ""
                self._retry(entry, self._alone, f"the worker's process died while it had this file{why}")
            else:
                self._alone.append(entry.task.number)

    def _retry(self, entry: _Entry, waiting: deque[int], end: FileReport | str) -> None:
        """Assign the file again, or finish it as failed if a retry budget is used up."""
        rules, number = self.rules, entry.task.number
        entry.holder = None
        if entry.failures <= rules.max_retries_failure and entry.preemptions <= rules.max_retries_preemption:
            waiting.append(number)
        else:
            self._finish(FileReport(number, FileStatus.FAILED, end) if isinstance(end, str) else end)

    def _finish(self, report: FileReport) -> None:
        entry = self._entries.pop(report.number, None)
        if entry is None:
            return
        status = report.status
        if status is FileStatus.EXISTED and entry.leases > 1:
            # An earlier try of this run made it, and could not tell.
            status = FileStatus.SUCCEEDED
        self._finished.append(FinishedFile(entry.task, status, report.error, report.trace))

    def _batch_limit(self) -> int:
        """Return how many files fill one assignment's target duration."""
        if self._file_seconds is None:
            return 1
        files = self.rules.batch_seconds / max(self._file_seconds, _LEAST_BATCH_SECONDS)
        return max(1, min(self.rules.batch_files, int(files)))

    def _choose_batch(self) -> tuple[int, ...]:
        while self._alone:
            number = self._alone.popleft()
            if self._is_free(number):
                return (number,)
        # So that all have about the same at the end.
        share = -(-len(self._pending) // (2 * max(1, len(self._lives))))
        batch: list[int] = []
        while self._pending and len(batch) < min(share, self._batch_limit()):
            number = self._pending.popleft()
            if self._is_free(number):
                batch.append(number)
        return tuple(batch)

    def _is_free(self, number: int) -> bool:
        """Return False if a process considered gone has finished the file."""
        entry = self._entries.get(number)
        return entry is not None and entry.holder is None
