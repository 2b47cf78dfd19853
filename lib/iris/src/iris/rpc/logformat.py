"""The record format of task logs, used on the worker's disk, on the wire, on the controller's disk, and by readers.

One record is one line of output (without its newline), or a part of a line:

    flags: u8 (bit 0: stderr, bit 1: partial, bit 2: note) | at_ms: u64 | length: u32 | data | check and length: u32

All numbers are little-endian. The length is on both sides of the data so that a file can be read from its end. The
second length has 21 bits. The 11 bits above it are a checksum of the rest without the lengths, which is never 0. A log
is append-only, so an offset always refers to the same byte. A note comes from iris, not from the task: it explains
which output is missing, and why.

Logs are read in spans: consecutive records as raw bytes. After damaged bytes, reading continues at the next valid
record: it has a time between 2004 and 2109, equal lengths on both sides, and a matching checksum. A note replaces the
damaged bytes (the hole).

Only this module depends on the layout.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<BQI")
_TRAILER: Final = struct.Struct("<I")
_LENGTH_AT: Final = 9
_STDERR: Final = 1
_PARTIAL: Final = 2
_NOTE: Final = 4
_FLAGS: Final = _STDERR | _PARTIAL | _NOTE

RECORD_OVERHEAD: Final = _HEADER.size + _TRAILER.size
MAX_DATA_BYTES: Final = 1024 * 1024
"""Maximum data of a record; writers split longer lines into partial records."""
MAX_RECORD_BYTES: Final = RECORD_OVERHEAD + MAX_DATA_BYTES
READ_BYTES: Final = 256 * 1024
"""Approximate maximum size of a span."""

_LENGTH_BITS: Final = 21
_LENGTHS: Final = 2**_LENGTH_BITS - 1
_NEVER: Final = 2**64
# Where a record may begin: flags, a time of this century, a length that is allowed. Matches may overlap.
_START: Final = re.compile(rb"(?=[\x00-\x07].{5}[\x01-\x03]\x00\x00.{2}[\x00-\x10]\x00)", re.DOTALL)

Read = Callable[[int, int], bytes]
"""Returns bytes of a log: from an offset, up to a count, fewer only at the log's end."""


class Record(NamedTuple):
    """One line, or a part of a line if `partial` (the next record of the same stream continues it)."""

    is_stderr: bool
    at_ms: int
    data: bytes
    partial: bool
    end: int
    """Offset of the first byte after this record, in the source bytes or the log."""
    note: bool = False
    """Whether this is a note from iris about missing output, not output of the task."""
    hole: int = 0
    """The number of missing bytes, for a note that is not stored in the log."""


class Span(NamedTuple):
    """Consecutive whole records of a log, or the note for a hole.

    Args:
        data: The records. end: Offset in the log after their last byte.
        first_ms: Minimum time of the records, or of the span from which they were selected. last_ms: Maximum time.
        plain: Whether each record is a whole line of output.
        hole: Number of missing bytes, if the span is a note for a hole.
    """

    data: bytes
    end: int
    first_ms: int
    last_ms: int
    plain: bool
    hole: int = 0

    @property
    def begins_ms(self) -> int:
        """The time of the first record."""
        return _HEADER.unpack_from(self.data)[1] if self.data else self.first_ms

    def records(self) -> Iterator[Record]:
        """Yield the records; `Record.end` is an offset in the log."""
        records = decode_all(self.data, self.end - len(self.data))
        return (record._replace(hole=self.hole) for record in records) if self.hole else records

    @property
    def lines(self) -> int:
        """The number of whole lines of output: records that are neither notes nor continued by another."""
        if self.hole:
            return 0
        uncounted = 0 if self.plain else _PARTIAL | _NOTE
        return sum(not self.data[begin] & uncounted for begin, _, _ in _places(self.data))

    def part(self, begin: int, end: int) -> "Span":
        """Return the records between two offsets in `data`."""
        if end - begin == len(self.data):
            return self
        return self._replace(data=self.data[begin:end], end=self.end - len(self.data) + end)

    def first(self, most: int) -> tuple["Span", int]:
        """Return the first records (at most `most`) and their number."""
        ends = [end for _, end, _ in islice(_places(self.data), most)]
        return self.part(0, ends[-1] if ends else 0), len(ends)

    def next_later(self, begin: int, time_ms: int) -> tuple[int, int]:
        """Return the offset in `data` of the first record later than a time, and its time; the end and 0 if there is
        none.

        Args:
            begin: Offset of a record; the search starts after it.
            time_ms: Unix ms.
        """
        if self.last_ms > time_ms:
            for at, _, at_ms in _places(self.data, begin):
                if at_ms > time_ms and at > begin:
                    return at, at_ms
        return len(self.data), 0

    def within(self, since_ms: int, until_ms: int) -> "Iterator[Span]":
        """Return the parts in a time range, inclusive.

        Args:
            since_ms: Unix ms.
            until_ms: Unix ms; 0 for no end.
        """
        until_ms = until_ms or _NEVER
        if since_ms <= self.first_ms and self.last_ms <= until_ms:
            yield self
            return
        wanted = 0
        for begin, end, at_ms in _places(self.data):
            if not since_ms <= at_ms <= until_ms:
                if wanted < begin:
                    yield self.part(wanted, begin)
                wanted = end
        if wanted < len(self.data):
            yield self.part(wanted, len(self.data))


def encode(is_stderr: bool, at_ms: int, data: bytes, partial: bool = False, note: bool = False) -> bytes:
    """Return the bytes of one record. Raises ValueError if `data` is longer than MAX_DATA_BYTES.

    Args:
        is_stderr: Whether the line is from stderr.
        at_ms: Unix ms.
        data: The line without its newline.
        partial: Whether the line continues in the next record of the stream.
        note: Whether this is a note from iris, not output of the task.
    """
    if len(data) > MAX_DATA_BYTES:
        raise ValueError(f"a log record holds at most {MAX_DATA_BYTES} bytes, not {len(data)}")
    return _encoded(
        (_STDERR if is_stderr else 0) | (_PARTIAL if partial else 0) | (_NOTE if note else 0), at_ms, (data,)
    )


def encode_lines(is_stderr: bool, at_ms: int, lines: list[bytes]) -> bytes:
    """Return the records of whole lines of at most MAX_DATA_BYTES, like `encode` but three times as fast.

    Args:
        is_stderr: Whether the lines are from stderr.
        at_ms: Unix ms.
        lines: The lines without their newlines.
    """
    return _encoded(_STDERR if is_stderr else 0, at_ms, lines)


def _encoded(flags: int, at_ms: int, lines: Iterable[bytes]) -> bytes:
    seed = (at_ms ^ at_ms >> 32 ^ flags << 29) & 0xFFFFFFFF
    header, trailer, crc32 = _HEADER.pack, _TRAILER.pack, zlib.crc32
    records: list[bytes] = []
    for line in lines:
        length = len(line)
        check = crc32(line, seed) >> _LENGTH_BITS or 1
        records += (header(flags, at_ms, length), line, trailer(length | check << _LENGTH_BITS))
    return b"".join(records)


def encode_record(record: Record) -> bytes:
    """Return the bytes of a record.

    Args:
        record: The record.
    """
    return encode(record.is_stderr, record.at_ms, record.data, record.partial, record.note)


def lost_output(count: int, why: str) -> bytes:
    """Return the text of a note about this many missing bytes of output."""
    return f"{count:,} bytes of output lost: {why}".encode()


def lost_log(count: int, why: str) -> bytes:
    """Return the text of a note about this many missing bytes of the log, which contain an unknown amount of output."""
    return f"{count:,} bytes of the log lost: {why}".encode()


def hole(at_ms: int, end: int, count: int, text: bytes) -> Span:
    """Return a note for `count` missing bytes before `end`.

    Args:
        at_ms: Time of the note in Unix ms.
        end: Offset after the missing bytes.
        count: Number of missing bytes.
        text: The note's text.
    """
    return Span(encode(True, at_ms, text, note=True), end, at_ms, at_ms, False, count)


def decode_all(buf: bytes, base: int = 0) -> Iterator[Record]:
    """Yield the complete records of `buf`, which starts at a record; a truncated last record is omitted.

    Args:
        buf: Whole records, except for the last.
        base: Offset of the first byte, added to `Record.end`.

    Raises:
        ValueError: The bytes are not a record.
    """
    position, size = 0, len(buf)
    header, trailer, crc32 = _HEADER.unpack_from, _TRAILER.unpack_from, zlib.crc32
    while position + RECORD_OVERHEAD <= size:
        flags, at_ms, length = header(buf, position)
        begin = position + _HEADER.size
        behind = begin + length
        end = behind + _TRAILER.size
        if flags > _FLAGS or length > MAX_DATA_BYTES:
            raise ValueError(f"not a log record at offset {position}: flags {flags:#x}, length {length}")
        if end > size:
            return
        data = buf[begin:behind]
        check = crc32(data, (at_ms ^ at_ms >> 32 ^ flags << 29) & 0xFFFFFFFF) >> _LENGTH_BITS or 1
        if trailer(buf, behind)[0] != length | check << _LENGTH_BITS:
            raise ValueError(f"not a log record at offset {position}: its lengths differ, or its checksum")
        yield Record(flags & _STDERR > 0, at_ms, data, flags & _PARTIAL > 0, base + end, flags & _NOTE > 0)
        position = end


def whole_records(buf: bytes, most: int = READ_BYTES) -> Span | None:
    """Return the records at the start, up to the first truncated or invalid record, or None.

    Args:
        buf: Bytes of a log.
        most: Number of bytes after which the span ends.
    """
    position, size = 0, len(buf)
    first_ms, last_ms, seen = _NEVER, 0, 0
    header, trailer, crc32 = _HEADER.unpack_from, _TRAILER.unpack_from, zlib.crc32
    while position < most and position + RECORD_OVERHEAD <= size:
        flags, at_ms, length = header(buf, position)
        behind = position + _HEADER.size + length
        if flags > _FLAGS or length > MAX_DATA_BYTES or behind + _TRAILER.size > size:
            break
        seed = (at_ms ^ at_ms >> 32 ^ flags << 29) & 0xFFFFFFFF
        check = crc32(buf[position + _HEADER.size : behind], seed) >> _LENGTH_BITS or 1
        if trailer(buf, behind)[0] != length | check << _LENGTH_BITS:
            break
        position = behind + _TRAILER.size
        seen |= flags
        if at_ms < first_ms:
            first_ms = at_ms
        if at_ms > last_ms:
            last_ms = at_ms
    if not position:
        return None
    return Span(buf[:position], position, first_ms, last_ms, not seen & (_PARTIAL | _NOTE))


def _places(data: bytes, begin: int = 0) -> Iterator[tuple[int, int, int]]:
    """Return the start, end and time of each record of a span."""
    unpack = _HEADER.unpack_from
    while begin < len(data):
        _, at_ms, length = unpack(data, begin)
        end = begin + RECORD_OVERHEAD + length
        yield begin, end, at_ms
        begin = end


def matching(data: bytes, find: Callable[[bytes, int], int], is_wanted: Callable[[bytes], object]) -> bytes:
    """Return the records of a span whose lines are selected.

    Args:
        data: Whole records.
        find: Returns the offset of the next possible match, from a given offset on; -1 for none.
        is_wanted: Returns whether a line is selected.
    """
    found: list[bytes] = []
    begin, size = 0, len(data)
    length_at = _TRAILER.unpack_from
    while begin < size:
        hit = find(data, begin)
        if hit < 0:
            break
        end = begin + RECORD_OVERHEAD + length_at(data, begin + _LENGTH_AT)[0]
        while end <= hit:
            begin = end
            end = begin + RECORD_OVERHEAD + length_at(data, begin + _LENGTH_AT)[0]
        if is_wanted(data[begin + _HEADER.size : end - _TRAILER.size]):
            found.append(data[begin:end])
        begin = end
    return b"".join(found)


def claimed_bytes(buf: bytes) -> int:
    """Return the length in the header of the record at the start; 0 if it is not a record."""
    if len(buf) < _HEADER.size:
        return RECORD_OVERHEAD
    flags, _, length = _HEADER.unpack_from(buf)
    return 0 if flags > _FLAGS or length > MAX_DATA_BYTES else RECORD_OVERHEAD + length


def claimed_before(buf: bytes) -> int:
    """Return the length in the footer of the record at the end; 0 if it is not a record."""
    length = _TRAILER.unpack_from(buf, len(buf) - _TRAILER.size)[0] & _LENGTHS
    return 0 if length > MAX_DATA_BYTES else RECORD_OVERHEAD + int(length)


def possible_starts(buf: bytes) -> Iterator[int]:
    """Return the offsets with a plausible record header, except in the last few bytes."""
    return (match.start() for match in _START.finditer(buf))
