"""The record format of task logs, on the worker's disk, on the wire and on the controller's disk.

One record is one line of output (without its newline), or a piece of one:

    flags: u8 (bit 0: stderr, bit 1: partial, bit 2: note) | at_ms: u64 | length: u32 | data | check and length: u32

All little-endian. The length stands on both sides of the data so that a file can be read from its end; the second one
has 21 bits, and above it 11 bits of a checksum of all but the lengths (0: a former release wrote the record, without).
A log is only ever appended to, so an offset into it names the same byte for ever. A note is no output of the task: iris
says in it what of the output is missing here, and why.

Bytes that are no record make only themselves unreadable: reading goes on at the next record, found by its form (a time
between 2004 and 2109, equal lengths on both sides), and a note stands for the hole. A record of zeros alone is a hole.
"""

import re
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

_HEADER: Final = struct.Struct("<BQI")
_TRAILER: Final = struct.Struct("<I")
_STDERR: Final = 1
_PARTIAL: Final = 2
_NOTE: Final = 4
_FLAGS: Final = _STDERR | _PARTIAL | _NOTE

RECORD_OVERHEAD: Final = _HEADER.size + _TRAILER.size
MAX_DATA_BYTES: Final = 1024 * 1024
"""No record holds more data than this; writers split longer lines into partial records."""
MAX_RECORD_BYTES: Final = RECORD_OVERHEAD + MAX_DATA_BYTES

_LENGTH_BITS: Final = 21
_LENGTHS: Final = 2**_LENGTH_BITS - 1
_EARLIEST_MS: Final = 2**40
_ZEROS: Final = bytes(RECORD_OVERHEAD)
READ_BYTES: Final = 256 * 1024
# Where a record may begin: flags, a time of this century, a length that is allowed. Matches may overlap.
_START: Final = re.compile(rb"(?=[\x00-\x07].{5}[\x01-\x03]\x00\x00.{2}[\x00-\x10]\x00)", re.DOTALL)


class Record(NamedTuple):
    """One line, or a piece of one when `partial` (the line goes on in the next record of the same stream)."""

    is_stderr: bool
    at_ms: int
    data: bytes
    partial: bool
    end: int
    """Offset of the first byte after this record, in the buffer or file it was read from."""
    note: bool = False
    """Written by iris, not by the task: what of the output is missing here."""
    hole: int = 0
    """In a note that is not in the file itself: how many bytes it stands for."""


def encode(is_stderr: bool, at_ms: int, data: bytes, partial: bool = False, note: bool = False) -> bytes:
    """Return the bytes of one record. Raises ValueError when `data` is longer than MAX_DATA_BYTES.

    Args:
        is_stderr: The line is of stderr.
        at_ms: Unix ms.
        data: The line without its newline.
        partial: The line goes on in the next record of the stream.
        note: It is a note of iris, no output of the task.
    """
    length = len(data)
    if length > MAX_DATA_BYTES:
        raise ValueError(f"a log record holds at most {MAX_DATA_BYTES} bytes, not {length}")
    flags = (_STDERR if is_stderr else 0) | (_PARTIAL if partial else 0) | (_NOTE if note else 0)
    check = zlib.crc32(data, (at_ms ^ at_ms >> 32 ^ flags << 29) & 0xFFFFFFFF) >> _LENGTH_BITS or 1
    return b"".join((_HEADER.pack(flags, at_ms, length), data, _TRAILER.pack(length | check << _LENGTH_BITS)))


def encode_lines(is_stderr: bool, at_ms: int, lines: list[bytes]) -> bytes:
    """The records of whole lines, as `encode` makes them, in a third of the time; each at most MAX_DATA_BYTES long.

    Args:
        is_stderr: The lines are of stderr.
        at_ms: Unix ms.
        lines: Without their newlines.
    """
    flags = _STDERR if is_stderr else 0
    seed = (at_ms ^ at_ms >> 32 ^ flags << 29) & 0xFFFFFFFF
    header, trailer, crc32 = _HEADER.pack, _TRAILER.pack, zlib.crc32
    records: list[bytes] = []
    for line in lines:
        length = len(line)
        check = crc32(line, seed) >> _LENGTH_BITS or 1
        records += (header(flags, at_ms, length), line, trailer(length | check << _LENGTH_BITS))
    return b"".join(records)


def lost_output(count: int, why: str) -> bytes:
    """The text of a note: so many bytes of output are not here."""
    return f"{count:,} bytes of output lost: {why}".encode()


def lost_log(count: int, why: str) -> bytes:
    """The text of a note: so many bytes of the log are not here; how much output they held is not known any more."""
    return f"{count:,} bytes of the log lost: {why}".encode()


def hole(at_ms: int, end: int, count: int, text: bytes) -> Record:
    """Return a note for `count` bytes before `end` that are not in the file.

    Args:
        at_ms: Unix ms shown with the note.
        end: Offset behind the missing bytes.
        count: Number of missing bytes.
        text: The note.
    """
    return Record(True, at_ms, text, False, end, note=True, hole=count)


def decode_all(buf: bytes) -> Iterator[Record]:
    """Yield the complete records of `buf`, which starts at a record; a cut last record is left out.

    Raises ValueError on bytes that are no record.
    """
    position, size = 0, len(buf)
    while position + RECORD_OVERHEAD <= size:
        flags, _, length = _HEADER.unpack_from(buf, position)
        end = position + RECORD_OVERHEAD + length
        if flags & ~_FLAGS or length > MAX_DATA_BYTES:
            raise ValueError(f"not a log record at offset {position}: flags {flags:#x}, length {length}")
        if end > size:
            return
        record = _record_at(buf, position, 0)
        if record is None:
            raise ValueError(f"not a log record at offset {position}: its lengths differ, or it is empty")
        yield record
        position = end


def last_complete(file: BinaryIO, size: int, known: int = 0) -> int:
    """Return the offset of the end of the last record in the first `size` bytes of `file`; more may follow later.

    Args:
        file: A log in the record format.
        size: Bytes to look at.
        known: The end of some complete record, from where to look when the last record is cut.
    """
    if size == known or _ends_with_record(file, size):
        return size
    reader = _Reader(file, known, size)
    while reader.next() is not None:
        pass
    return reader.position


def read_from(file: BinaryIO, start: int, since_ms: int = 0, end: int | None = None) -> Iterator[Record]:
    """Yield the complete records of `file` from offset `start` on, in bounded memory; a note for each hole.

    `Record.end` is an offset into the file. Records older than `since_ms` are skipped.

    Args:
        file: A log in the record format.
        start: Offset of a record's first byte.
        since_ms: Unix ms; older records are skipped.
        end: Read to here, where a record ends; to the end of the file (with a cut last record) otherwise.
    """
    reader = _Reader(file, start, file.seek(0, 2) if end is None else end, closed=end is not None)
    while (record := reader.next()) is not None:
        if record.at_ms >= since_ms:
            yield record


def read_tail(file: BinaryIO, max_lines: int, since_ms: int = 0, end: int | None = None) -> list[Record]:
    """Return the last `max_lines` records not older than `since_ms`, oldest first.

    Reads backwards, so the cost depends on what is returned and not on the size of the log.

    Args:
        file: A log in the record format.
        max_lines: Most records to return; 0: all.
        since_ms: Unix ms.
        end: End of the last complete record where the caller knows it; found from the end of the file otherwise.
    """
    if end is None:
        end = last_complete(file, file.seek(0, 2))
    if max_lines <= 0:
        return list(read_from(file, 0, since_ms, end))
    found: deque[Record] = deque()
    while end > 0 and len(found) < max_lines:
        before = _records_before(file, end)
        if not before:
            break
        for record, start in reversed(before):
            if record.at_ms < since_ms or len(found) == max_lines:
                return list(found)
            found.appendleft(record)
            end = start
    return list(found)


class _Reader:
    """Walks over the records between two offsets.

    Args:
        closed: A record ends at `end`, so what seems to go on beyond it is a hole.
    """

    def __init__(self, file: BinaryIO, start: int, end: int, closed: bool = False) -> None:
        self.position = start
        self._file = file
        self._end = end
        self._closed = closed
        self._buffer = b""
        self._base = start  # offset of the buffer's first byte
        self._at_ms = 0

    def next(self) -> Record | None:
        """The next record, or the note of a hole; None at the end, or at a record that is not complete yet."""
        offset = self.position - self._base
        if 0 <= offset < len(self._buffer) - RECORD_OVERHEAD:
            # Nearly every record: whole, in the buffer, and as it should be.
            known = _record_at(self._buffer, offset, self._base)
            if known is not None and not known.at_ms < _EARLIEST_MS < self._at_ms:
                self.position, self._at_ms = known.end, known.at_ms
                return known
        found = self._read_at(self.position)
        if isinstance(found, Record):
            self.position, self._at_ms = found.end, found.at_ms
            return found
        return self._skip() if found or (self._closed and self.position < self._end) else None

    def _read_at(self, position: int) -> Record | bool:
        """The record that begins there; True: what is there is none; False: it is not complete."""
        left = self._end - position
        if left < _HEADER.size:
            return False
        flags, at_ms, length = _HEADER.unpack(self._bytes(position, _HEADER.size))
        if flags & ~_FLAGS or length > MAX_DATA_BYTES or (at_ms < _EARLIEST_MS < self._at_ms):
            return True
        total = RECORD_OVERHEAD + length
        if total > left:
            return False
        self._bytes(position, total)
        return _record_at(self._buffer, position - self._base, self._base) or True

    def _skip(self) -> Record:
        """The note of a hole, behind which the next record begins, if there is one."""
        start = self.position
        position = start + 1
        while position + _HEADER.size <= self._end:
            window = self._bytes(position, min(READ_BYTES, self._end - position))
            for match in _START.finditer(window):
                candidate = position + match.start()
                found = self._read_at(candidate)
                if isinstance(found, Record):
                    return self._hole(start, candidate, found.at_ms)
            position += max(len(window) - _HEADER.size, 1) if len(window) > _HEADER.size else 1
        return self._hole(start, self._end, self._at_ms)

    def _hole(self, start: int, end: int, next_at_ms: int) -> Record:
        self.position = end
        text = f"{end - start:,} bytes of the log cannot be read: they are damaged on the disk".encode()
        return hole(self._at_ms or next_at_ms, end, end - start, text)

    def _bytes(self, position: int, count: int) -> bytes:
        offset = position - self._base
        if offset < 0 or offset + count > len(self._buffer):
            self._file.seek(position)
            self._buffer = self._file.read(min(max(count, READ_BYTES), self._end - position))
            self._base, offset = position, 0
        return self._buffer[offset : offset + count]


def _record_at(buf: bytes, position: int, base: int) -> Record | None:
    """The record that is wholly in `buf` at `position`; None when there is none."""
    flags, at_ms, length = _HEADER.unpack_from(buf, position)
    start = position + _HEADER.size
    if flags & ~_FLAGS or length > MAX_DATA_BYTES or start + length + _TRAILER.size > len(buf):
        return None
    (again,) = _TRAILER.unpack_from(buf, start + length)
    data = bytes(buf[start : start + length])
    if again != length:
        check = zlib.crc32(data, (at_ms ^ at_ms >> 32 ^ flags << 29) & 0xFFFFFFFF) >> _LENGTH_BITS or 1
        if again != length | check << _LENGTH_BITS:
            return None
    elif not length and buf.startswith(_ZEROS, position):
        return None
    return Record(
        bool(flags & _STDERR),
        at_ms,
        data,
        bool(flags & _PARTIAL),
        base + start + length + _TRAILER.size,
        bool(flags & _NOTE),
    )


def _ends_with_record(file: BinaryIO, end: int) -> bool:
    return _read_before(file, end) is not None


def _read_before(file: BinaryIO, end: int) -> tuple[Record, int] | None:
    """The record that ends there and where it begins; None when none does."""
    if end < RECORD_OVERHEAD:
        return None
    file.seek(end - _TRAILER.size)
    length = _TRAILER.unpack(file.read(_TRAILER.size))[0] & _LENGTHS
    start = end - RECORD_OVERHEAD - length
    if length > MAX_DATA_BYTES or start < 0:
        return None
    file.seek(start)
    record = _record_at(file.read(end - start), 0, start)
    return None if record is None or record.end != end else (record, start)


def _records_before(file: BinaryIO, end: int) -> list[tuple[Record, int]]:
    """Records before `end`, oldest first, with where they begin: one, or those behind a hole that ends there."""
    single = _read_before(file, end)
    if single is not None:
        return [single]
    # The end of a hole: read forward from so far back that whole records must lie before it.
    back = 2 * MAX_RECORD_BYTES
    while True:
        start = max(end - back, 0)
        found: list[tuple[Record, int]] = []
        position = start
        for record in read_from(file, start, 0, end):
            found.append((record, position))
            position = record.end
        if start and found[0][0].hole:
            found = found[1:]  # where the window begins says nothing about the log
        if found[:-1] or not start:
            return found
        back *= 4
