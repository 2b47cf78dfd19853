"""One attempt's log on the controller's disk: several files. Files in the middle may be dropped.

Each file's name contains its start offset (`iris.controller.logs.names`). A gap between two files is dropped output,
because the log exceeded its limit or the disk was full; readers see a note. An empty last file marks the length of the
log. `iris.controller.logs.keeper` packs and moves finished files.
"""

import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from iris.controller.logs.names import MOVED, LogFileName, exception_file_name, file_name, parse_name, result_file_name
from iris.controller.logs.pieces import JoinedPieces, LogPlace
from iris.rpc.logformat import Record, Span, decode_all, hole, lost_log
from iris.rpc.logreading import last_complete, start_of_last

logger = logging.getLogger(__name__)

_FILES_PER_LOG: Final = 16
_LONGEST_NOTE: Final = 1024
SMALLEST_FILE: Final = 64 * 1024
_LARGEST_FILE: Final = 1024 * 1024

DROPPED: Final = "the log was longer than is kept, or the controller's disk was nearly full"


class Counted(NamedTuple):
    """A block of a log: its offset, its number of lines, and whether it begins with a record."""

    begin: int
    lines: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits of one attempt's log: the number of bytes to keep, and a check for disk space.

    Args:
        spare: Makes room for a few bytes at any cost, for notes about dropped bytes.
    """

    limit_bytes: int
    has_room: Callable[[int], bool]
    spare: Callable[[], bool] = lambda: False

    @property
    def file_bytes(self) -> int:
        """The size at which the next file starts."""
        return min(max(self.limit_bytes // _FILES_PER_LOG, SMALLEST_FILE), _LARGEST_FILE)


@dataclass(slots=True)
class LogFiles:
    """The files of one log in order, each with its start and size.

    Args:
        size: Length of the log, including dropped bytes. stored: Length without dropped bytes.
        complete: The known end of the readable part.
        closed: Whether the last file is final and may be packed at any moment.
        counted: The lines of finished files, by start (`iris.controller.logs.lines`).
    """

    place: LogPlace
    files: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0
    stored: int = 0
    complete: int = 0
    closed: bool = False
    counted: dict[int, list[Counted]] = field(default_factory=dict)

    @classmethod
    def found(cls, place: LogPlace, names: Sequence[LogFileName]) -> "LogFiles":
        """Return the log on disk with files of these names."""
        sizes = {name.start: name.size for name in names if name.size >= 0}
        growing = -1
        for name in names:
            if name.size >= 0:
                continue
            try:
                # Of two forms of a piece the earlier is used; a crash left both.
                sizes[name.start] = os.stat(place.raw(name.start)).st_size
                growing = max(growing, name.start)
            except FileNotFoundError:
                # It was dropped, or packed since its directory was listed.
                later = (found for found in place.names() if found.start == name.start and found.size >= 0)
                sizes.update((found.start, found.size) for found in later)
        closed = bool(sizes) and growing < max(sizes)
        files = sorted(sizes.items())
        return cls(place, files, files[-1][0] + files[-1][1] if files else 0, sum(sizes.values()), closed=closed)

    def append(self, data: memoryview, limits: LogLimits) -> None:
        """Append data. Beyond the limit, drop files in the middle, or else `data` itself. Raise OSError."""
        count = len(data)
        while self.stored + count > limits.limit_bytes and self._drop_middle():
            pass
        has_room = self.stored + count <= limits.limit_bytes and self._make_room(count, limits)
        if not has_room and not (_is_note(data) and limits.spare()):
            self.drop(count)
            return
        last = self.files[-1] if self.files else (0, 0)
        if not self.files or sum(last) != self.size or last[1] >= limits.file_bytes or (self.closed and last[1]):
            self._begin()
        start, size = self.files[-1]
        descriptor = os.open(self.place.raw(start), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            rest = data
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            written = os.fstat(descriptor).st_size - size
            os.close(descriptor)
            self.files[-1] = (start, size + written)
            self.size += written
            self.stored += written

    def drop(self, count: int) -> None:
        """Skip `count` bytes of the log and add a note about them."""
        self.size += count
        # Where even an empty file cannot be made, the note is lost with a restart of the controller.
        with contextlib.suppress(OSError):
            self._begin()
            os.close(os.open(self.place.raw(self.size), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def complete_size(self) -> int:
        """Return the offset of the end of the readable part."""
        if self.complete != self.size:
            start, run = ([(0, []), *self.runs()])[-1]
            self.complete = max(self.complete, start + self._end_of_run(run, max(self.complete - start, 0)))
        return self.complete

    def read(self, start: int, since_ms: int = 0) -> Iterator[Record]:
        """Yield the records of `spans` one by one."""
        return (record for span in self.spans(start, since_ms) for record in span.records())

    def spans(self, start: int, since_ms: int = 0, until_ms: int = 0, before_ms: int = 0) -> Iterator[Span]:
        """Yield the records from offset `start` (a record's start) to the current end, with a note for dropped bytes.

        Args:
            start: Offset in the log.
            since_ms: Unix ms. Earlier records are skipped.
            until_ms: Unix ms. Later records are skipped. 0 for no end.
            before_ms: Unix ms of the record before `start`, if known: the time of a leading note.
        """
        end = self.complete_size()
        at_ms = before_ms
        for begin, run in self.runs():
            stop = min(begin + sum(size for _, size in run), end)
            skipped = 0
            if begin > start:
                skipped, start = begin - start, begin
            spans = self._of_run(begin, run, (start, stop), (since_ms, until_ms), closed=stop == end)
            first = next(spans, None)
            # What was dropped began and ended somewhere in a record; the piece that is left counts as dropped.
            if begin and begin == start and first is not None and first.hole and first.end - first.hole == begin:
                skipped, start = skipped + first.hole, first.end
                first = next(spans, None)
            if skipped:
                at_ms = at_ms or (0 if first is None else first.begins_ms)
                if at_ms >= since_ms or (first is not None and first.begins_ms >= since_ms):
                    note = hole(max(at_ms, since_ms), start, skipped, lost_log(skipped, DROPPED))
                    yield from note.within(since_ms, until_ms)
            while first is not None:
                at_ms, start = first.last_ms, first.end
                yield from first.within(since_ms, until_ms)
                first = next(spans, None)

    def tail(self, max_lines: int, since_ms: int) -> list[Record]:
        """Return the last `max_lines` of the records that `read` yields from the beginning; 0 for all."""
        start = self.tail_start(max_lines, since_ms) if max_lines > 0 else 0
        return list(deque(self.read(start, since_ms), max_lines if max_lines > 0 else None))

    def tail_start(self, max_lines: int, since_ms: int) -> int:
        """Return an offset with at least `max_lines` records after it, or all records since `since_ms`."""
        left = max_lines + 1  # one more than is wanted: the note of a hole behind it has its time
        for begin, run in reversed(self.runs()):
            if run:
                with closing(JoinedPieces(self.place, run)) as pieces:
                    offset, left = start_of_last(pieces.read, left, since_ms, self._end_of_run(run))
                if not left:
                    return begin + offset
        return 0

    def remove(self) -> None:
        """Delete all files, and the exception or result beside them."""
        for start, size in self.files:
            self.place.remove(start, size)
        place = self.place
        for name in (exception_file_name, result_file_name):
            (place.directory / name(place.index, place.attempt)).unlink(missing_ok=True)
        self.files.clear()

    def finished(self) -> list[tuple[int, int]]:
        """Return offset and size of the finished files."""
        return [(start, size) for start, size in (self.files if self.closed else self.files[:-1]) if size]

    def runs(self) -> list[tuple[int, list[tuple[int, int]]]]:
        """Return runs of consecutive files without a gap, with the start of each run."""
        runs: list[tuple[int, list[tuple[int, int]]]] = []
        end = -1
        for start, size in self.files:
            if start != end or not runs:
                runs.append((start, []))
            if size:
                runs[-1][1].append((start, size))
            end = start + size
        return runs

    def _of_run(
        self, begin: int, run: list[tuple[int, int]], part: tuple[int, int], time_ms: tuple[int, int], closed: bool
    ) -> Iterator[Span]:
        """Yield the records of a part of a run, possibly with records of other times. If `closed`, the part's end is a
        record's end.
        """
        first, end = part[0] - begin, part[1] - begin
        if not run or first >= end:
            return
        with closing(JoinedPieces(self.place, run)) as pieces:
            # Before a hole the last record may be cut; the piece counts as dropped.
            end = end if closed else last_complete(pieces.read, end, first)
            for span in pieces.spans(first, end, *time_ms):
                if span.hole and pieces.was_dropped(span.end - span.hole, span.end):
                    yield hole(span.last_ms, span.end + begin, span.hole, lost_log(span.hole, DROPPED))
                else:
                    yield span._replace(end=span.end + begin)

    def _end_of_run(self, run: list[tuple[int, int]], known: int = 0) -> int:
        """Return the end of the last complete record of a run, relative to the run's start."""
        if not run:
            return 0
        with closing(JoinedPieces(self.place, run)) as pieces:
            return last_complete(pieces.read, sum(size for _, size in run), known)

    def _begin(self) -> None:
        if self.files and not self.files[-1][1]:
            # It said how much was dropped up to here; now it is where the log goes on.
            start, _ = self.files.pop()
            with contextlib.suppress(OSError):
                os.replace(self.place.raw(start), self.place.raw(self.size))
        elif not self.files:
            self.place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.files.append((self.size, 0))
        self.closed = False

    def _make_room(self, count: int, limits: LogLimits) -> bool:
        """Return whether `count` bytes may be written. On a full disk, drop older output to make room."""
        return limits.has_room(count) or self._drop_middle() >= count

    def _drop_middle(self) -> int:
        """Drop the oldest file except the first and the current one, and return its size."""
        if len(self.files) < 3:
            return 0
        start, size = self.files.pop(1)
        self.place.remove(start, size)
        self.stored -= size
        return size


def _is_note(data: memoryview) -> bool:
    """Return whether the data is a single note about dropped output."""
    if len(data) > _LONGEST_NOTE:
        return False
    try:
        records = list(decode_all(bytes(data)))
    except ValueError:
        return False
    return bool(records) and records[-1].end == len(data) and all(record.note for record in records)


def shed(root: Path, wanted: int) -> int:
    """Drop log files below `root`, longest logs first, until about `wanted` bytes are free. Return the freed bytes.

    The last resort of a controller that cannot start otherwise. Each log gets a note with the dropped size.
    """
    found = []
    for directory, _, names in os.walk(root):
        for text in names:
            name = parse_name(text)
            if name is not None:
                path = Path(directory) / text
                found.append((path.stat().st_size, path, name))
    freed = 0
    for size, path, name in sorted(found, reverse=True):
        if freed >= wanted or not size or name.form == MOVED:
            continue
        logger.error("the disk is full: %s is dropped, so that the controller can start", path)
        with contextlib.suppress(OSError):
            path.unlink()
            freed += size
            # Says how long the log was; where it goes on in another file this one is there already.
            end = name.start + (size if name.size < 0 else name.size)
            path.with_name(file_name(name.task, name.attempt, end)).touch(mode=0o600)
    return freed
