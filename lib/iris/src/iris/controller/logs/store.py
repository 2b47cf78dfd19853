"""The controller's copies of task logs: append-only records per attempt.

An acknowledged append is in the page cache, so it survives the death of the controller. The worker keeps its own copy
until the end of the attempt is committed and the controller has its whole log.
"""

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from iris.controller.logs.files import SMALLEST_FILE, LogFiles, LogLimits
from iris.controller.logs.names import (
    FILE_MARK,
    LogFileName,
    exception_file_name,
    file_name,
    parse_name,
    result_file_name,
)
from iris.controller.logs.pieces import Expect, Fetch, LogPlace
from iris.rpc.logformat import Record
from iris.store.log_shelf import LogShelf
from rigging.errors import InvalidRequest

logger = logging.getLogger(__name__)

DEFAULT_LIMIT_BYTES: Final = 1024**3

TRASH: Final = "logs-trash"
"""A directory next to the logs' directory: notes about remote objects to remove."""

_RESULTS_SINCE: Final = "results-since"
"""A file next to the logs' directory: since when (Unix ms) the store has results. A None result has no file, like a
result from before.
"""

_SHELVED: Final = frozenset({".log", ".exception", ".result"})
_SHELVED_FILES: Final = 8
_SHELVED_BYTES: Final = 8192
"""Kinds, number and bytes of the files of a job that goes on the shelf."""

LogKey = tuple[str, int, int]
"""Job id, task index, attempt number."""


class LogStore:
    """Logs below one directory: `<user>/<job>/<child>/~<index>.<attempt>.log` (see `iris.controller.logs.files`).

    Args:
        limit_bytes: The size limit of an attempt's log. Its beginning and its newest part are kept.
        has_room: Returns whether the disk has room for more bytes. spare: Makes room for a note at any cost.
        fetch: Reads moved pieces from the remote state; None raises PieceMovedError instead.
        announce: Called with remote objects that will be read soon.
        shelf: Stores the small logs of ended jobs; None keeps them in files.
    """

    def __init__(
        self,
        root: Path,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        has_room: Callable[[int], bool] = lambda count: count >= 0,
        spare: Callable[[], bool] = lambda: False,
        fetch: Fetch | None = None,
        announce: Expect | None = None,
        shelf: LogShelf | None = None,
    ) -> None:
        self.shelf = shelf
        self.root = root
        self.trash = root.with_name(TRASH)
        self.on_ripe: Callable[[LogKey, int, int], None] | None = None
        """Called with each complete piece (key, offset, size)."""
        self.results_since_ms = 0
        self._fetch = fetch
        self._announce = announce
        self._ending: set[LogKey] = set()  # their last pieces are being packed
        self._limits = LogLimits(limit_bytes, has_room, spare)
        self._logs: dict[LogKey, LogFiles] = {}
        self._listed: dict[str, dict[tuple[int, int], list[LogFileName]]] = {}

    def size(self, key: LogKey) -> int:
        """Return the accepted bytes of one attempt's log, including dropped ones."""
        return self.log(key).size

    def append(self, key: LogKey, offset: int, data: bytes) -> int:
        """Append the new part of `data`, which starts at `offset` of the log, and return the accepted size.

        Known bytes are skipped. After a gap nothing is added: the returned size is the offset to continue from. Dropped
        bytes (limit or full disk) count as accepted, and a note marks them. Raise OSError.

        Args:
            key: Task and number of the attempt.
            offset: The offset of the first byte of `data` in the log.
            data: Whole records.
        """
        log = self.log(key)
        skip = log.size - offset
        if skip < 0 or skip >= len(data):
            return log.size
        before = log.files[-1][0] if log.files else 0
        try:
            log.append(memoryview(data)[skip:], self._limits)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            log.drop(offset + len(data) - log.size)
        finally:
            self._found(key[0]).setdefault((key[1], key[2]), [LogFileName(key[1], key[2], 0)])
        if self.on_ripe is not None and log.files[-1][0] != before and (finished := log.finished()):
            self.on_ripe(key, *finished[-1])
        return log.size

    def attempts(self, job_id: str) -> set[tuple[int, int]]:
        """Return (task index, attempt number) of a job's attempts with output."""
        return set(self._found(job_id))

    def keys(self, job_id: str) -> list[LogKey]:
        """Return the logs of a job, in order of task and attempt."""
        return [(job_id, index, attempt) for index, attempt in sorted(self.attempts(job_id))]

    def complete_size(self, key: LogKey) -> int:
        """Return the offset of the end of the readable part."""
        return self.log(key).complete_size()

    def read(self, key: LogKey, start: int, since_ms: int = 0) -> Iterator[Record]:
        """Yield the whole records from offset `start` (a record's start) to the current end, with notes for missing
        parts.

        Args:
            key: The log.
            start: The start offset in bytes.
            since_ms: Unix ms. Earlier records are skipped.
        """
        return self.log(key).read(start, since_ms)

    def tail(self, key: LogKey, max_lines: int, since_ms: int = 0) -> list[Record]:
        """Return the last `max_lines` records not older than `since_ms`, oldest first.

        Args:
            key: Task and number of the attempt.
            max_lines: Maximum number of records; 0 for all.
            since_ms: Unix ms.
        """
        return self.log(key).tail(max_lines, since_ms)

    def keep_exception(self, key: LogKey, data: bytes) -> None:
        """Store the pickled exception of the attempt's callable as long as its log; best effort."""
        try:
            if self._limits.has_room(len(data)):
                self._beside_log(key, exception_file_name).write_bytes(data)
        except OSError as error:
            logger.warning("the exception of %s/%d is not kept: %s", key[0], key[1], error)

    def begin_results(self, now_ms: int) -> None:
        """Record in a new directory that results are stored from now on (Unix ms)."""
        note = self.root.parent / _RESULTS_SINCE
        try:
            self.results_since_ms = int(note.read_text())
        except (OSError, ValueError):
            self.results_since_ms = now_ms
            with contextlib.suppress(OSError):
                note.write_text(str(now_ms))

    def keep_result(self, key: LogKey, data: bytes) -> None:
        """Store the packed result of the attempt's callable as long as its log. Raise OSError."""
        self._beside_log(key, result_file_name).write_bytes(data)

    def keep_result_file(self, key: LogKey, file: Path) -> None:
        """Store the content of a file like `keep_result`, by a link or a copy. Raise OSError."""
        target = self._beside_log(key, result_file_name)
        target.unlink(missing_ok=True)
        try:
            os.link(file, target)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            shutil.copyfile(file, target)

    def read_result(self, key: LogKey, offset: int, most: int) -> tuple[bytes, int]:
        """Return the stored result of the attempt from an offset, and its total size; 0 if there is none.

        Args:
            key: Task and number of the attempt.
            offset: The offset of the first byte.
            most: Maximum number of bytes to return.
        """
        try:
            with (self.directory(key[0]) / result_file_name(*key[1:])).open("rb") as file:
                file.seek(offset)
                return file.read(most), os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            return b"", 0

    def _beside_log(self, key: LogKey, name: Callable[[int, int], str]) -> Path:
        """Return the path of a new file beside the attempt's log, and record that the file exists."""
        directory = self.directory(key[0])
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.size(key):
            # One that wrote nothing has a log all the same, by which the file is found again and removed.
            (directory / file_name(*key[1:], 0)).touch(mode=0o600)
        self._found(key[0]).setdefault((key[1], key[2]), [LogFileName(key[1], key[2], 0)])
        return directory / name(*key[1:])

    def exception(self, key: LogKey) -> bytes:
        """Return the stored exception of the attempt's callable; empty if there is none."""
        try:
            return (self.directory(key[0]) / exception_file_name(*key[1:])).read_bytes()
        except OSError:
            return b""

    def remove_below(self, job_id: str, first_attempt: int, most: int) -> bool:
        """Remove up to `most` logs of attempts with lower numbers. Return whether more may remain.

        These logs belong to an ended job whose name was reused.
        """
        lower = ((job_id, *item) for item in self._found(job_id) if item[1] < first_attempt)
        chosen = list(islice(lower, most))
        for key in chosen:
            self.remove_log(key)
        return len(chosen) == most

    def remove_log(self, key: LogKey) -> None:
        """Remove one attempt's log."""
        self.log(key).remove()
        if self.shelf is not None:
            self.shelf.remove(key[0], f"{FILE_MARK}{key[1]}.{key[2]}.")
        self._logs.pop(key, None)
        self._found(key[0]).pop(key[1:], None)

    def remove(self, job_id: str) -> None:
        """Remove all logs of a removed job."""
        if self.shelf is not None:
            self.shelf.remove(job_id)
        for index, attempt in self.attempts(job_id):
            self.log((job_id, index, attempt)).remove()
        self.release(job_id)
        self._remove_directory(job_id)

    def _remove_directory(self, job_id: str) -> None:
        """Remove the directories of the job, its parents and its user, if they are empty."""
        directory = self.directory(job_id)
        with contextlib.suppress(OSError):
            while directory != self.root:
                directory.rmdir()
                directory = directory.parent

    def small_files(self, job_id: str) -> dict[str, bytes]:
        """Return all files of an ended job if they are few and small, else none. Any thread may call it."""
        found: dict[str, bytes] = {}
        try:
            for entry in os.scandir(self.directory(job_id)):
                if entry.is_dir() or not entry.name.startswith(FILE_MARK):
                    continue
                if Path(entry.name).suffix not in _SHELVED or len(found) == _SHELVED_FILES:
                    return {}
                found[entry.name] = Path(entry.path).read_bytes()
        except OSError:
            return {}
        return found if sum(map(len, found.values())) <= _SHELVED_BYTES else {}

    def drop_shelved(self, job_id: str, names: Iterable[str]) -> None:
        """Remove files of a job that are on the shelf, unless somebody reads them."""
        if job_id in self._listed:
            return
        directory = self.directory(job_id)
        for name in names:
            (directory / name).unlink(missing_ok=True)
        self._remove_directory(job_id)

    def stored_jobs(self, above: str = "") -> Iterator[str]:
        """Return the ids of `above` and its descendants with a log, or of all jobs with files. Reads the directory."""
        shelved = self.shelf.jobs(above) if above and self.shelf is not None else []
        yield from shelved
        for directory, _, files in os.walk(self.directory(above) if above else self.root):
            if any(name.startswith(FILE_MARK) for name in files):
                name = "/" + Path(directory).relative_to(self.root).as_posix()
                if name not in shelved:
                    yield name

    def release(self, job_id: str) -> None:
        """Drop cached data about an ended job; a later request reads it again."""
        for index, attempt in self._listed.pop(job_id, ()):
            self._logs.pop((job_id, index, attempt), None)

    def directory(self, job_id: str) -> Path:
        """Return the directory of a job's logs. Raise InvalidRequest."""
        parts = job_id.split("/")[1:]
        if not parts or any(part in ("", ".", "..") for part in parts):
            raise InvalidRequest(f"not a job id: {job_id!r}")
        return self.root.joinpath(*parts)

    def log(self, key: LogKey) -> LogFiles:
        """Return the files of one attempt's log."""
        log = self._logs.get(key)
        if log is None:
            job_id, index, attempt = key
            names = self._found(job_id).get((index, attempt), ())
            log = self._logs[key] = LogFiles.found(self.place(key), names)
            log.closed |= key in self._ending
        return log

    def place(self, key: LogKey) -> LogPlace:
        """Return the location of one log's pieces."""
        return LogPlace(self.directory(key[0]), key[1], key[2], self._fetch, self.trash, self._announce)

    def settling(self, job_id: str) -> Iterator[None]:
        """Pack the last pieces of an ended job's logs if they are large enough, and drop cached data.

        Each step handles one log. Cached data is dropped after the last log. Logs on the shelf stay there.
        """
        if job_id not in self._listed:
            if not os.path.isdir(f"{self.root}{job_id}"):
                return  # it printed nothing
            self._listed[job_id] = self._names(job_id)
        for key in self.keys(job_id) if self.on_ripe is not None else ():
            log = self.log(key)
            if not log.closed and log.files and log.files[-1][1] >= SMALLEST_FILE:
                log.closed = True
                self._ending.add(key)
                assert self.on_ripe is not None  # else nothing is looked at
                self.on_ripe(key, *log.files[-1])
            yield
        self.release(job_id)

    def tended(self, key: LogKey, start: int, size: int) -> None:
        """Record that a piece was packed or moved. If the piece was dropped meanwhile, remove its new form, too.

        Args:
            key: The log.
            start: The start of the piece in bytes.
            size: Its size.
        """
        self._ending.discard(key)
        log = self._logs.get(key)
        if log is not None and start not in dict(log.files):
            log.place.remove_packed(start, size)

    def _found(self, job_id: str) -> dict[tuple[int, int], list[LogFileName]]:
        known = self._listed.get(job_id)
        if known is None:
            known = self._listed[job_id] = self._names(job_id)
            if not known and self.shelf is not None and (files := self.shelf.files(job_id)):
                directory = self.directory(job_id)
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                for name, data in files.items():
                    (directory / name).write_bytes(data)
                known = self._listed[job_id] = self._names(job_id)
        return known

    def _names(self, job_id: str) -> dict[tuple[int, int], list[LogFileName]]:
        found: dict[tuple[int, int], list[LogFileName]] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.directory(job_id)):
                parsed = parse_name(name)
                if parsed is not None:
                    found.setdefault(parsed[:2], []).append(parsed)
        return found
