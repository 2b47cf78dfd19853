"""The controller's copies of task logs: one append-only file of records an attempt, and who waits for more of it.

An append is durable against the death of the controller (it is in the page cache when it is acknowledged), and the
worker keeps its own copy until the end of the attempt is committed and its whole log is here.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from iris.rpc.logformat import Record, last_complete, read_from, read_tail
from rigging.errors import InvalidRequest

# Not allowed in the name of a job, so a log file cannot collide with the directory of a child job.
_FILE_MARK: Final = "~"
_SUFFIX: Final = ".log"

LogKey = tuple[str, int, int]
"""Job id, task index, attempt number."""


class LogStore:
    """Logs below one directory: `<user>/<job>/<child>/~<index>.<attempt>.log`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sizes: dict[LogKey, int] = {}
        self._complete: dict[LogKey, int] = {}
        self._listed: dict[str, set[tuple[int, int]]] = {}

    def size(self, key: LogKey) -> int:
        """Bytes held of one attempt's log."""
        size = self._sizes.get(key)
        if size is None:
            if key[0] not in self._listed and not self._directory(key[0]).is_dir():
                self._listed[key[0]] = set()
            size = self._stat(key) if (key[1], key[2]) in self.attempts(key[0]) else 0
            self._sizes[key] = size
        return size

    def append(self, key: LogKey, offset: int, data: bytes) -> int:
        """Add what is new of `data`, which starts at `offset` of the log; return the size held afterwards.

        Bytes that are here already are skipped. After a gap nothing is added: the size returned says where to go on.
        """
        size = self.size(key)
        skip = size - offset
        if skip < 0 or skip >= len(data):
            return size
        path = self._path(key)
        if size == 0:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            rest = memoryview(data)[skip:]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            self._sizes[key] = os.fstat(descriptor).st_size
            raise
        finally:
            os.close(descriptor)
        size += len(data) - skip
        self._sizes[key] = size
        self.attempts(key[0]).add((key[1], key[2]))
        return size

    def attempts(self, job_id: str) -> set[tuple[int, int]]:
        """(task index, attempt number) of the attempts of a job that have written anything."""
        known = self._listed.get(job_id)
        if known is None:
            known = self._listed[job_id] = set(self._scan(job_id))
        return known

    def keys(self, job_id: str, index: int | None = None) -> list[LogKey]:
        """The logs of a job, or of one of its tasks, in order of task and attempt."""
        return [(job_id, i, attempt) for i, attempt in sorted(self.attempts(job_id)) if index is None or i == index]

    def complete_size(self, key: LogKey) -> int:
        """Offset of the end of the last whole record held."""
        size = self.size(key)
        known = self._complete.get(key, 0)
        if size == known:
            return size
        with self._path(key).open("rb") as file:
            complete = last_complete(file, size, known)
        self._complete[key] = complete
        return complete

    def read(self, key: LogKey, start: int, since_ms: int = 0) -> Iterator[Record]:
        """The whole records from offset `start` (a record's start) to the present end."""
        if start >= self.complete_size(key):
            return
        with self._path(key).open("rb") as file:
            yield from read_from(file, start, since_ms)

    def tail(self, key: LogKey, max_lines: int, since_ms: int = 0) -> list[Record]:
        """The last `max_lines` records not older than `since_ms`, oldest first."""
        end = self.complete_size(key)
        if not end:
            return []
        with self._path(key).open("rb") as file:
            return read_tail(file, max_lines, since_ms, end)

    def remove_below(self, job_id: str, first_attempt: int) -> None:
        """Remove the logs of attempts with lower numbers: those of an ended job whose name was used again."""
        attempts = self.attempts(job_id)
        for index, attempt in [item for item in attempts if item[1] < first_attempt]:
            key = (job_id, index, attempt)
            self._path(key).unlink(missing_ok=True)
            self._sizes.pop(key, None)
            self._complete.pop(key, None)
            attempts.discard((index, attempt))

    def remove(self, job_id: str) -> None:
        """Remove all logs of a job that is forgotten."""
        directory = self._directory(job_id)
        for index, attempt in self.attempts(job_id):
            self._path((job_id, index, attempt)).unlink(missing_ok=True)
        self.release(job_id)
        # The directories of the job, its parents and its user, as far as nothing else is in them.
        with contextlib.suppress(OSError):
            while directory != self._root:
                directory.rmdir()
                directory = directory.parent

    def stored_jobs(self, above: str = "") -> Iterator[str]:
        """The ids of the jobs that have a log here: of all, or of `above` and those below it. Reads that directory."""
        for directory, _, files in os.walk(self._directory(above) if above else self._root):
            if any(name.startswith(_FILE_MARK) for name in files):
                yield "/" + Path(directory).relative_to(self._root).as_posix()

    def release(self, job_id: str) -> None:
        """Drop what is kept in memory about an ended job; it is read again when it is asked for."""
        for index, attempt in self._listed.pop(job_id, ()):
            self._sizes.pop((job_id, index, attempt), None)
            self._complete.pop((job_id, index, attempt), None)

    def _directory(self, job_id: str) -> Path:
        parts = job_id.split("/")[1:]
        if not parts or any(part in ("", ".", "..") for part in parts):
            raise InvalidRequest(f"not a job id: {job_id!r}")
        return self._root.joinpath(*parts)

    def _path(self, key: LogKey) -> Path:
        job_id, index, attempt = key
        return self._directory(job_id) / f"{_FILE_MARK}{index}.{attempt}{_SUFFIX}"

    def _stat(self, key: LogKey) -> int:
        try:
            return self._path(key).stat().st_size
        except FileNotFoundError:
            return 0

    def _scan(self, job_id: str) -> Iterator[tuple[int, int]]:
        try:
            names = os.listdir(self._directory(job_id))
        except FileNotFoundError:
            return
        for name in names:
            if name.startswith(_FILE_MARK) and name.endswith(_SUFFIX):
                index, _, attempt = name[len(_FILE_MARK) : -len(_SUFFIX)].partition(".")
                yield int(index), int(attempt)
