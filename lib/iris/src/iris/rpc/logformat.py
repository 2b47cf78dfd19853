"""The record format of task logs, on the worker's disk, on the wire and on the controller's disk.

One record is one line of output (without its newline), or a piece of one:

    flags: u8 (bit 0: stderr, bit 1: partial) | at_ms: u64 | length: u32 | data | length: u32

All little-endian. The length stands on both sides of the data so that a file can be read from its end.
A log is only ever appended to, so an offset into it names the same byte for ever.
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

_HEADER: Final = struct.Struct("<BQI")
_TRAILER: Final = struct.Struct("<I")
_STDERR: Final = 1
_PARTIAL: Final = 2

RECORD_OVERHEAD: Final = _HEADER.size + _TRAILER.size
MAX_DATA_BYTES: Final = 1024 * 1024
"""No record holds more data than this; writers split longer lines into partial records."""

_READ_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """One line, or a piece of one when `partial` (the line goes on in the next record of the same stream)."""

    is_stderr: bool
    at_ms: int
    data: bytes
    partial: bool
    end: int
    """Offset of the first byte after this record, in the buffer or file it was read from."""


def encode(is_stderr: bool, at_ms: int, data: bytes, partial: bool = False) -> bytes:
    """The bytes of one record. Raises ValueError when `data` is longer than MAX_DATA_BYTES."""
    length = len(data)
    if length > MAX_DATA_BYTES:
        raise ValueError(f"a log record holds at most {MAX_DATA_BYTES} bytes, not {length}")
    flags = (_STDERR if is_stderr else 0) | (_PARTIAL if partial else 0)
    return b"".join((_HEADER.pack(flags, at_ms, length), data, _TRAILER.pack(length)))


def decode_all(buf: bytes) -> Iterator[Record]:
    """Yield the complete records of `buf`, which starts at a record; a cut last record is left out.

    Raises ValueError on bytes that are no record.
    """
    position, size = 0, len(buf)
    while position + RECORD_OVERHEAD <= size:
        flags, at_ms, length = _HEADER.unpack_from(buf, position)
        _check_header(flags, length, position)
        end = position + RECORD_OVERHEAD + length
        if end > size:
            return
        start = position + _HEADER.size
        yield Record(bool(flags & _STDERR), at_ms, bytes(buf[start : start + length]), bool(flags & _PARTIAL), end)
        position = end


def last_complete(file: BinaryIO, size: int, known: int = 0) -> int:
    """Offset of the end of the last complete record in the first `size` bytes of `file`.

    Args:
        known: The end of some complete record, from where to look when the last record is cut.
    """
    if size == known or _ends_with_record(file, size):
        return size
    return _scan_complete(file, known, size)


def read_from(file: BinaryIO, start: int, since_ms: int = 0) -> Iterator[Record]:
    """Yield the complete records of `file` from offset `start` (a record's start) on, in bounded memory.

    `Record.end` is an offset into the file. Records older than `since_ms` are skipped.
    """
    position, pending = start, b""
    while True:
        file.seek(position + len(pending))
        data = file.read(_READ_BYTES)
        if not data:
            return
        pending += data
        used = 0
        for record in decode_all(pending):
            used = record.end
            if record.at_ms >= since_ms:
                yield Record(record.is_stderr, record.at_ms, record.data, record.partial, position + record.end)
        position += used
        pending = pending[used:]


def read_tail(file: BinaryIO, max_lines: int, since_ms: int = 0, end: int | None = None) -> list[Record]:
    """The last `max_lines` records (0: all) not older than `since_ms`, oldest first.

    Reads backwards, so the cost depends on what is returned and not on the size of the log.

    Args:
        end: End of the last complete record where the caller knows it; found from the end of the file otherwise.
    """
    if max_lines <= 0:
        return list(read_from(file, 0, since_ms)) if end is None else _up_to(read_from(file, 0, since_ms), end)
    if end is None:
        end = last_complete(file, file.seek(0, 2))
    found: deque[Record] = deque()
    while end > 0 and len(found) < max_lines:
        record, start = _read_before(file, end)
        if record.at_ms < since_ms:
            break
        found.appendleft(record)
        end = start
    return list(found)


def _up_to(records: Iterator[Record], end: int) -> list[Record]:
    kept: list[Record] = []
    for record in records:
        if record.end > end:
            break
        kept.append(record)
    return kept


def _check_header(flags: int, length: int, position: int) -> None:
    if flags & ~(_STDERR | _PARTIAL) or length > MAX_DATA_BYTES:
        raise ValueError(f"not a log record at offset {position}: flags {flags:#x}, length {length}")


def _ends_with_record(file: BinaryIO, end: int) -> bool:
    if end < RECORD_OVERHEAD:
        return False
    file.seek(end - _TRAILER.size)
    (length,) = _TRAILER.unpack(file.read(_TRAILER.size))
    start = end - RECORD_OVERHEAD - length
    if length > MAX_DATA_BYTES or start < 0:
        return False
    file.seek(start)
    flags, _, header_length = _HEADER.unpack(file.read(_HEADER.size))
    return bool(header_length == length and not flags & ~(_STDERR | _PARTIAL))


def _read_before(file: BinaryIO, end: int) -> tuple[Record, int]:
    file.seek(end - _TRAILER.size)
    (length,) = _TRAILER.unpack(file.read(_TRAILER.size))
    start = end - RECORD_OVERHEAD - length
    if length > MAX_DATA_BYTES or start < 0:
        raise ValueError(f"not a log record before offset {end}: length {length}")
    file.seek(start)
    buf = file.read(end - start)
    flags, at_ms, header_length = _HEADER.unpack_from(buf, 0)
    _check_header(flags, header_length, start)
    if header_length != length:
        raise ValueError(f"not a log record before offset {end}: lengths {header_length} and {length} differ")
    data = buf[_HEADER.size : _HEADER.size + length]
    return Record(bool(flags & _STDERR), at_ms, data, bool(flags & _PARTIAL), end), start


def _scan_complete(file: BinaryIO, start: int, size: int) -> int:
    position = start
    while position + RECORD_OVERHEAD <= size:
        file.seek(position)
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            break
        flags, _, length = _HEADER.unpack(header)
        _check_header(flags, length, position)
        end = position + RECORD_OVERHEAD + length
        if end > size:
            break
        position = end
    return position
