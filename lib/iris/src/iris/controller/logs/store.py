"""The controller's copies of task logs: one append-only file of records an attempt, and who waits for more of it.

An append is durable against the death of the controller (it is in the page cache when it is acknowledged), and the
worker keeps its own copy until the end of the attempt is committed and its whole log is here.
"""

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from iris.controller.logs.files import FILE_MARK, LogFiles, LogLimits, exception_file_name, file_name, parse_file_name
from iris.rpc.logformat import Record
from rigging.errors import InvalidRequest

logger = logging.getLogger(__name__)

DEFAULT_LIMIT_BYTES: Final = 1024**3

LogKey = tuple[str, int, int]
"""Job id, task index, attempt number."""


class LogStore:
    """Logs below one directory: `<user>/<job>/<child>/~<index>.<attempt>.log` (see `iris.controller.logs.files`).

    Args:
        limit_bytes: So much of an attempt's log is kept: its beginning, and what is newest.
        has_room: Whether the disk has room for so many bytes more. spare: Makes room for a note at any cost.
    """

    def __init__(
        self,
        root: Path,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        has_room: Callable[[int], bool] = lambda count: count >= 0,
        spare: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = root
        self._limits = LogLimits(limit_bytes, has_room, spare)
        self._logs: dict[LogKey, LogFiles] = {}
        self._listed: dict[str, dict[tuple[int, int], list[int]]] = {}  # with where the files of each begin

    def size(self, key: LogKey) -> int:
        """Bytes taken of one attempt's log, also those that were dropped since."""
        return self._log(key).size

    def append(self, key: LogKey, offset: int, data: bytes) -> int:
        """Add what is new of `data`, which starts at `offset` of the log; return the size taken afterwards.

        Bytes that are here already are skipped. After a gap nothing is added: the size returned says where to go on.
        What the limit or the disk has no room for counts as taken, and a note stands for it. Raises OSError.

        Args:
            key: Task and number of the attempt.
            offset: Place of the first byte of `data` in the log.
            data: Whole records.
        """
        log = self._log(key)
        skip = log.size - offset
        if skip < 0 or skip >= len(data):
            return log.size
        try:
            log.append(memoryview(data)[skip:], self._limits)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            log.drop(offset + len(data) - log.size)
        finally:
            self._found(key[0]).setdefault((key[1], key[2]), [0])
        return log.size

    def attempts(self, job_id: str) -> set[tuple[int, int]]:
        """(task index, attempt number) of the attempts of a job that have written anything."""
        return set(self._found(job_id))

    def keys(self, job_id: str, index: int | None = None) -> list[LogKey]:
        """The logs of a job, or of one of its tasks, in order of task and attempt."""
        return [(job_id, i, attempt) for i, attempt in sorted(self.attempts(job_id)) if index is None or i == index]

    def complete_size(self, key: LogKey) -> int:
        """Offset of the end of what can be read now."""
        return self._log(key).complete_size()

    def read(self, key: LogKey, start: int, since_ms: int = 0) -> Iterator[Record]:
        """The whole records from offset `start` (a record's start) to the present end, notes for what is missing."""
        return self._log(key).read(start, since_ms)

    def tail(self, key: LogKey, max_lines: int, since_ms: int = 0) -> list[Record]:
        """Return the last `max_lines` records not older than `since_ms`, oldest first.

        Args:
            key: Task and number of the attempt.
            max_lines: Most records to return; 0: all.
            since_ms: Unix ms.
        """
        return self._log(key).tail(max_lines, since_ms)

    def keep_exception(self, key: LogKey, data: bytes) -> None:
        """Keep what the attempt's callable raised, as its process has pickled it, as long as its log; best effort."""
        directory = self._directory(key[0])
        try:
            if self._limits.has_room(len(data)):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                (directory / exception_file_name(*key[1:])).write_bytes(data)
                if not self.size(key):
                    # One that wrote nothing has a log all the same, by which this is found again and removed.
                    (directory / file_name(*key[1:], 0)).touch(mode=0o600)
                self._found(key[0]).setdefault((key[1], key[2]), [0])
        except OSError as error:
            logger.warning("the exception of %s/%d is not kept: %s", key[0], key[1], error)

    def exception(self, key: LogKey) -> bytes:
        """Return the stored exception of the attempt's callable; empty when there is none."""
        try:
            return (self._directory(key[0]) / exception_file_name(*key[1:])).read_bytes()
        except OSError:
            return b""

    def remove_below(self, job_id: str, first_attempt: int) -> None:
        """Remove the logs of attempts with lower numbers: those of an ended job whose name was used again."""
        attempts = self._found(job_id)
        for index, attempt in [item for item in attempts if item[1] < first_attempt]:
            key = (job_id, index, attempt)
            self._log(key).remove()
            self._logs.pop(key, None)
            del attempts[(index, attempt)]

    def remove(self, job_id: str) -> None:
        """Remove all logs of a job that is forgotten."""
        directory = self._directory(job_id)
        for index, attempt in self.attempts(job_id):
            self._log((job_id, index, attempt)).remove()
        self.release(job_id)
        # The directories of the job, its parents and its user, as far as nothing else is in them.
        with contextlib.suppress(OSError):
            while directory != self._root:
                directory.rmdir()
                directory = directory.parent

    def stored_jobs(self, above: str = "") -> Iterator[str]:
        """The ids of the jobs that have a log here: of all, or of `above` and those below it. Reads that directory."""
        for directory, _, files in os.walk(self._directory(above) if above else self._root):
            if any(name.startswith(FILE_MARK) for name in files):
                yield "/" + Path(directory).relative_to(self._root).as_posix()

    def release(self, job_id: str) -> None:
        """Drop what is kept in memory about an ended job; it is read again when it is asked for."""
        for index, attempt in self._listed.pop(job_id, ()):
            self._logs.pop((job_id, index, attempt), None)

    def _directory(self, job_id: str) -> Path:
        parts = job_id.split("/")[1:]
        if not parts or any(part in ("", ".", "..") for part in parts):
            raise InvalidRequest(f"not a job id: {job_id!r}")
        return self._root.joinpath(*parts)

    def _log(self, key: LogKey) -> LogFiles:
        log = self._logs.get(key)
        if log is None:
            job_id, index, attempt = key
            starts = self._found(job_id).get((index, attempt), ())
            log = self._logs[key] = LogFiles.found(self._directory(job_id), index, attempt, starts)
        return log

    def _found(self, job_id: str) -> dict[tuple[int, int], list[int]]:
        known = self._listed.get(job_id)
        if known is None:
            known = self._listed[job_id] = {}
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(self._directory(job_id)):
                    parsed = parse_file_name(name)
                    if parsed is not None:
                        known.setdefault(parsed[:2], []).append(parsed[2])
        return known
