"""Reads a log in the record format (`iris.rpc.logformat`), forward from an offset or backward from the end."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from iris.rpc.logformat import (
    MAX_RECORD_BYTES,
    READ_BYTES,
    RECORD_OVERHEAD,
    Read,
    Record,
    Span,
    claimed_before,
    claimed_bytes,
    hole,
    possible_starts,
    whole_records,
)  # fmt: skip

_FIRST_BYTES: Final = 4096


def read_spans(
    read: Read, start: int, end: int, closed: bool = False, most: int = READ_BYTES, before_ms: int = 0
) -> Iterator[Span]:
    """Yield the records of a log between two offsets, in bounded memory, with a note for each hole.

    Args:
        read: Reads bytes of the log.
        start: Offset of a record's first byte.
        end: Offset to read up to.
        closed: Whether a record ends at `end`. If so, a truncated last record is a hole; otherwise it is omitted.
        most: Number of bytes after which a span ends.
        before_ms: Unix ms of the record before `start`, if known, for the time of an initial note.
    """
    position, at_ms, wanted = start, before_ms, READ_BYTES
    while position < end:
        buf = read(position, min(wanted, end - position))
        span = whole_records(buf, most)
        if span is not None:
            span = span._replace(end=position + span.end)
        else:
            total = claimed_bytes(buf)
            is_cut = total > end - position
            if is_cut and not closed:
                return
            if total > len(buf) and not is_cut:
                wanted = total
                continue
            behind, next_ms = _next_record(read, position + 1, end)
            text = f"{behind - position:,} bytes of the log cannot be read: they are damaged on the disk".encode()
            span = hole(at_ms or next_ms, behind, behind - position, text)
        yield span
        position, at_ms, wanted = span.end, span.last_ms, READ_BYTES


def read_from(read: Read, start: int, end: int, closed: bool = False) -> Iterator[Record]:
    """Yield the records of `read_spans` one by one; `Record.end` is an offset in the log."""
    for span in read_spans(read, start, end, closed):
        yield from span.records()


def last_complete(read: Read, size: int, known: int = 0) -> int:
    """Return the offset after the last complete record in the first `size` bytes of a growing log.

    Args:
        read: Reads bytes of the log.
        size: Number of bytes to search.
        known: The end of a complete record; the search starts here if the last record is truncated.
    """
    if size == known or _record_before(_Window(read), size) is not None:
        return size
    for span in read_spans(read, known, size):
        known = span.end
    return known


def start_of_last(read: Read, count: int, since_ms: int, end: int) -> tuple[int, int]:
    """Return the start of the last `count` records before an offset, and how many of them are missing.

    Reads backward, so the cost does not depend on the size of the log. Holes count as records.

    Args:
        read: Reads bytes of the log.
        count: Number of requested records.
        since_ms: Unix ms; at most one earlier record is returned.
        end: The end of a record or of a hole.
    """
    window = _Window(read)
    while count > 0 and end > 0:
        found = _record_before(window, end)
        end, at_ms = (_hole_before(read, end), since_ms) if found is None else found
        count = 0 if at_ms < since_ms else count - 1
    return end, count


class _Window:
    """The bytes before an offset, read in increasing portions."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._buf = b""
        self._base = 0
        self._most = _FIRST_BYTES

    def bytes(self, begin: int, end: int) -> bytes:
        """Return the bytes of a range, which must not end after an earlier range's end."""
        if begin < self._base or end > self._base + len(self._buf):
            self._base = max(min(begin, end - self._most), 0)
            self._most = min(4 * self._most, READ_BYTES)
            self._buf = self._read(self._base, end - self._base)
        return self._buf[begin - self._base : end - self._base]


def _record_before(window: _Window, end: int) -> tuple[int, int] | None:
    """Return the start and time of the record that ends at an offset, or None."""
    total = claimed_before(window.bytes(end - RECORD_OVERHEAD, end)) if end >= RECORD_OVERHEAD else 0
    if not 0 < total <= end:
        return None
    record = whole_records(window.bytes(end - total, end))
    return None if record is None or len(record.data) != total else (end - total, record.last_ms)


def _hole_before(read: Read, end: int) -> int:
    """Return the start of the hole that ends at an offset. Reads forward from far enough back to include whole
    records.
    """
    back = 2 * MAX_RECORD_BYTES
    while True:
        start = max(end - back, 0)
        begin = end - deque(read_spans(read, start, end, closed=True), 1)[0].hole
        if begin > start or not start:
            return begin
        back *= 4


def _next_record(read: Read, position: int, end: int) -> tuple[int, int]:
    """Return the start and time of the next record at or after an offset; the end and 0 if there is none."""
    while position + RECORD_OVERHEAD <= end:
        window = read(position, min(READ_BYTES, end - position))
        for start in possible_starts(window):
            total = claimed_bytes(window[start : start + RECORD_OVERHEAD])
            begin = position + start
            found = whole_records(read(begin, total), most=1) if total <= end - begin else None
            if found is not None:
                return begin, found.last_ms
        # A record that begins in the last few bytes is found with those behind them.
        position += max(len(window) - RECORD_OVERHEAD, 1)
    return end, 0
