"""The record format of task logs: on the worker's disk, on the wire, on the controller's disk, and to its readers.

One record is one line of output (without its newline), or a piece of one:

    flags: u8 (bit 0: stderr, bit 1: partial, bit 2: note) | at_ms: u64 | length: u32 | data | check and length: u32

All little-endian. The length stands on both sides of the data so that a file can be read from its end; the second one
has 21 bits, and above it 11 bits of a checksum of all but the lengths, which is never 0. A log is only ever appended
to, so an offset into it names the same byte for ever. A note is no output of the task: iris says in it what of the
output is missing here, and why.

Logs are read in spans: records that follow each other, handed on as the bytes that they are. Bytes that are no record
make only themselves unreadable: reading goes on at the next record, found by its form (a time between 2004 and 2109,
equal lengths on both sides, the checksum), and a note stands for the hole.

Nothing outside of this module knows the layout.
"""

import re
import struct
import zlib
from collections import deque
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
"""No record holds more data than this; writers split longer lines into partial records."""
MAX_RECORD_BYTES: Final = RECORD_OVERHEAD + MAX_DATA_BYTES
READ_BYTES: Final = 256 * 1024
"""A span has about so many bytes at most."""
_FIRST_BYTES: Final = 4096

_LENGTH_BITS: Final = 21
_LENGTHS: Final = 2**_LENGTH_BITS - 1
_NEVER: Final = 2**64
# Where a record may begin: flags, a time of this century, a length that is allowed. Matches may overlap.
_START: Final = re.compile(rb"(?=[\x00-\x07].{5}[\x01-\x03]\x00\x00.{2}[\x00-\x10]\x00)", re.DOTALL)

Read = Callable[[int, int], bytes]
"""Gives bytes of a log: from an offset on, so many, fewer only at its end."""


class Record(NamedTuple):
    """One line, or a piece of one when `partial` (the line goes on in the next record of the same stream)."""

    is_stderr: bool
    at_ms: int
    data: bytes
    partial: bool
    end: int
    """Offset of the first byte after this record, in the bytes or the log that it was read from."""
    note: bool = False
    """Written by iris, not by the task: what of the output is missing here."""
    hole: int = 0
    """In a note that is not in the log itself: how many bytes it stands for."""


class Span(NamedTuple):
    """Whole records that follow each other in a log, or the note of a hole in it.

    Args:
        data: The records. end: Offset in the log of the first byte behind them.
        first_ms: The earliest time of them, or of the span that they were chosen from. last_ms: The latest.
        plain: Each of them is a whole line of output: no piece of one, no note.
        hole: Bytes of the log for which the note stands, if it is one.
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
        """The records; `Record.end` is an offset in the log."""
        records = decode_all(self.data, self.end - len(self.data))
        return (record._replace(hole=self.hole) for record in records) if self.hole else records

    def part(self, begin: int, end: int) -> "Span":
        """The records between two offsets in `data`."""
        if end - begin == len(self.data):
            return self
        return self._replace(data=self.data[begin:end], end=self.end - len(self.data) + end)

    def first(self, most: int) -> tuple["Span", int]:
        """The first records, and how many they are: `most`, or all."""
        ends = [end for _, end, _ in islice(_places(self.data), most)]
        return self.part(0, ends[-1] if ends else 0), len(ends)

    def next_later(self, begin: int, time_ms: int) -> tuple[int, int]:
        """Where in `data` the first record is that is later than a time, and its time; the end and 0 if there is none.

        Args:
            begin: Where to begin: with a record, which is passed in any case.
            time_ms: Unix ms.
        """
        if self.last_ms > time_ms:
            for at, _, at_ms in _places(self.data, begin):
                if at_ms > time_ms and at > begin:
                    return at, at_ms
        return len(self.data), 0

    def within(self, since_ms: int, until_ms: int) -> "Iterator[Span]":
        """The parts that are of a time; both its ends are included.

        Args:
            since_ms: Unix ms.
            until_ms: Unix ms; 0: no end.
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
    """Return the bytes of one record. Raises ValueError when `data` is longer than MAX_DATA_BYTES.

    Args:
        is_stderr: The line is of stderr.
        at_ms: Unix ms.
        data: The line without its newline.
        partial: The line goes on in the next record of the stream.
        note: It is a note of iris, no output of the task.
    """
    if len(data) > MAX_DATA_BYTES:
        raise ValueError(f"a log record holds at most {MAX_DATA_BYTES} bytes, not {len(data)}")
    return _encoded(
        (_STDERR if is_stderr else 0) | (_PARTIAL if partial else 0) | (_NOTE if note else 0), at_ms, (data,)
    )


def encode_lines(is_stderr: bool, at_ms: int, lines: list[bytes]) -> bytes:
    """The records of whole lines, as `encode` makes them, in a third of the time; each at most MAX_DATA_BYTES long.

    Args:
        is_stderr: The lines are of stderr.
        at_ms: Unix ms.
        lines: Without their newlines.
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
    """The bytes of a record that was read.

    Args:
        record: The record.
    """
    return encode(record.is_stderr, record.at_ms, record.data, record.partial, record.note)


def lost_output(count: int, why: str) -> bytes:
    """The text of a note: so many bytes of output are not here."""
    return f"{count:,} bytes of output lost: {why}".encode()


def lost_log(count: int, why: str) -> bytes:
    """The text of a note: so many bytes of the log are not here; how much output they held is not known any more."""
    return f"{count:,} bytes of the log lost: {why}".encode()


def hole(at_ms: int, end: int, count: int, text: bytes) -> Span:
    """Return a note for `count` bytes before `end` that are not in the log.

    Args:
        at_ms: Unix ms shown with the note.
        end: Offset behind the missing bytes.
        count: Number of missing bytes.
        text: The note.
    """
    return Span(encode(True, at_ms, text, note=True), end, at_ms, at_ms, False, count)


def decode_all(buf: bytes, base: int = 0) -> Iterator[Record]:
    """Yield the complete records of `buf`, which starts at a record; a cut last record is left out.

    Args:
        buf: Whole records, but for the last.
        base: Offset of the first byte, of which `Record.end` counts on.

    Raises:
        ValueError: On bytes that are no record.
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


def whole_records(buf: bytes, begin: int = 0, most: int = READ_BYTES) -> Span | None:
    """Return the records of `buf` from an offset on, up to the first that is cut or none; None: there is none.

    Args:
        buf: Bytes of a log.
        begin: Where the first record is to begin.
        most: Bytes with which the span is long enough.
    """
    position, size, enough = begin, len(buf), begin + most
    first_ms, last_ms, seen = _NEVER, 0, 0
    header, trailer, crc32 = _HEADER.unpack_from, _TRAILER.unpack_from, zlib.crc32
    while position < enough and position + RECORD_OVERHEAD <= size:
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
    if position == begin:
        return None
    return Span(buf[begin:position], position, first_ms, last_ms, not seen & (_PARTIAL | _NOTE))


def _places(data: bytes, begin: int = 0) -> Iterator[tuple[int, int, int]]:
    """Where each record of a span begins and ends, and its time."""
    unpack = _HEADER.unpack_from
    while begin < len(data):
        _, at_ms, length = unpack(data, begin)
        end = begin + RECORD_OVERHEAD + length
        yield begin, end, at_ms
        begin = end


def matching(data: bytes, find: Callable[[bytes, int], int], is_wanted: Callable[[bytes], object]) -> bytes:
    """Return those records of a span's bytes of which the line is wanted.

    Args:
        data: Whole records.
        find: Says from where on, at or behind an offset, something may be wanted; -1: nothing any more.
        is_wanted: Looks at a line.
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


def read_spans(read: Read, start: int, end: int, closed: bool = False, most: int = READ_BYTES) -> Iterator[Span]:
    """Yield the records of a log between two offsets, in bounded memory; a note for each hole.

    Args:
        read: Gives bytes of the log.
        start: Offset of a record's first byte.
        end: Read to here.
        closed: A record ends there, so what seems to go on beyond it is a hole; else a cut last record is left out.
        most: Bytes with which a span is long enough.
    """
    position, at_ms, wanted = start, 0, READ_BYTES
    while position < end:
        buf = read(position, min(wanted, end - position))
        span = whole_records(buf, most=most)
        if span is not None:
            span = span._replace(end=position + span.end)
        else:
            total = _claimed(buf)
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
    """Yield the records of `read_spans`, one by one; `Record.end` is an offset in the log."""
    for span in read_spans(read, start, end, closed):
        yield from span.records()


def last_complete(read: Read, size: int, known: int = 0) -> int:
    """Return the offset of the end of the last record in the first `size` bytes of a log; more may follow later.

    Args:
        read: Gives bytes of the log.
        size: Bytes to look at.
        known: The end of some complete record, from where to look when the last record is cut.
    """
    if size == known or _record_before(_Window(read), size) is not None:
        return size
    for span in read_spans(read, known, size):
        known = span.end
    return known


def start_of_last(read: Read, count: int, since_ms: int, end: int) -> tuple[int, int]:
    """Return where the last records before an offset begin, and how many of those wanted the log does not have.

    Reads backwards, so the cost depends on what is wanted and not on the size of the log. Holes count as records.

    Args:
        read: Gives bytes of the log.
        count: How many are wanted.
        since_ms: Unix ms; no more is wanted than one record that is earlier.
        end: End of a record, or of a hole.
    """
    window = _Window(read)
    while count > 0 and end > 0:
        found = _record_before(window, end)
        end, at_ms = (_hole_before(read, end), since_ms) if found is None else found
        count = 0 if at_ms < since_ms else count - 1
    return end, count


class _Window:
    """The bytes before an offset, read more and more at a time."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._buf = b""
        self._base = 0
        self._most = _FIRST_BYTES

    def bytes(self, begin: int, end: int) -> bytes:
        """The bytes of a range, which ends no later than any before it."""
        if begin < self._base or end > self._base + len(self._buf):
            self._base = max(min(begin, end - self._most), 0)
            self._most = min(4 * self._most, READ_BYTES)
            self._buf = self._read(self._base, end - self._base)
        return self._buf[begin - self._base : end - self._base]


def _record_before(window: _Window, end: int) -> tuple[int, int] | None:
    """Where the record begins that ends there, and its time; None when none does."""
    if end < RECORD_OVERHEAD:
        return None
    length = _TRAILER.unpack(window.bytes(end - _TRAILER.size, end))[0] & _LENGTHS
    begin = end - RECORD_OVERHEAD - length
    if length > MAX_DATA_BYTES or begin < 0:
        return None
    buf = window.bytes(begin, end)
    record = whole_records(buf)
    return None if record is None or record.end != len(buf) else (begin, record.last_ms)


def _hole_before(read: Read, end: int) -> int:
    """Where the hole begins that ends there, found by reading on from so far back that whole records lie before it."""
    back = 2 * MAX_RECORD_BYTES
    while True:
        start = max(end - back, 0)
        begin = end - deque(read_spans(read, start, end, closed=True), 1)[0].hole
        if begin > start or not start:
            return begin
        back *= 4


def _claimed(buf: bytes) -> int:
    """How long the record at the beginning says that it is; 0: it is none."""
    if len(buf) < _HEADER.size:
        return RECORD_OVERHEAD
    flags, _, length = _HEADER.unpack_from(buf)
    return 0 if flags > _FLAGS or length > MAX_DATA_BYTES else RECORD_OVERHEAD + length


def _next_record(read: Read, position: int, end: int) -> tuple[int, int]:
    """Where the next record begins, at or behind an offset, and its time; the end and 0 when there is none."""
    while position + RECORD_OVERHEAD <= end:
        window = read(position, min(READ_BYTES, end - position))
        for match in _START.finditer(window):
            begin = position + match.start()
            total = _claimed(window[match.start() :][: _HEADER.size])
            found = whole_records(read(begin, total), most=1) if total <= end - begin else None
            if found is not None:
                return begin, found.last_ms
        position += max(len(window) - _HEADER.size + 1, 1)
    return end, 0
