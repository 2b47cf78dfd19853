"""The wanted lines of logs on a disk, found without looking at each line where that can be helped.

A packed block is passed over whole when no line in it can be wanted: it is of another time, or lacks a text that every
match must have. Of a block that has that text, only the records around it are looked at.
"""

import heapq
import re
import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from iris.controller.logs.block_search import block_search
from iris.controller.logs.files import LogFiles
from iris.controller.logs.packed import Block
from iris.controller.logs.pieces import PackedReader
from iris.controller.logs.read_ahead import AHEAD
from iris.controller.logs.store import LogKey, LogStore
from iris.rpc.logfilter import LineChoice, LineFilter, required_text
from iris.rpc.logformat import RECORD_OVERHEAD, Record, decode_all

Line = tuple[LogKey, Record]

MERGED: Final = 64
"""Logs that are merged by time; more come one after another."""

_LENGTH: Final = struct.Struct("<I")
_LENGTH_AT: Final = 9
_DATA_AT: Final = 13
_TRAILER_BYTES: Final = RECORD_OVERHEAD - _DATA_AT


@dataclass(slots=True)
class Search:
    """Looks through logs; a later round gives what has come since.

    Args:
        since_ms: Unix ms; earlier lines are not wanted.
        max_lines: The last ones of the first round and all that follow, or the first ones if `from_start`; 0: all.
    """

    store: LogStore
    choice: LineChoice
    since_ms: int = 0
    max_lines: int = 0
    from_start: bool = False
    _logs: "dict[LogKey, LogSearch]" = field(default_factory=dict)
    _given: int = 0
    _rounds: int = 0

    def round(self, keys: list[LogKey], positions: Mapping[LogKey, int], last: bool) -> Iterator[Line]:
        """The wanted lines of these logs since the last round, merged by time.

        Args:
            keys: The logs.
            positions: Where to begin in logs of which others have read the beginning.
            last: Nothing follows, so lines without an end are given, too.
        """
        self._rounds += 1
        for job_id in {key[0] for key in keys}:
            self.store.release(job_id)  # what was known of its files
        sources = [self._lines(key, positions.get(key, 0), last) for key in keys]
        lines: Iterator[Line]
        if len(sources) == 1:
            lines = sources[0]
        elif len(sources) > MERGED:
            lines = (line for source in sources for line in source)
        else:
            lines = heapq.merge(*sources, key=_at_ms)
        if not self.max_lines:
            return lines
        if self.from_start:
            return self._counted(islice(lines, self.max_lines - self._given))
        return iter(deque(lines, self.max_lines)) if self._rounds == 1 else lines

    def _counted(self, lines: Iterator[Line]) -> Iterator[Line]:
        for line in lines:
            self._given += 1
            yield line

    def _lines(self, key: LogKey, begin: int, last: bool) -> Iterator[Line]:
        search = self._logs.get(key)
        if search is None:
            search = self._logs[key] = LogSearch(self.choice, self.since_ms, begin)
        for record in search.records(self.store.log(key)):
            yield key, record
        for record in search.filter.finish() if last else ():
            yield key, record


def _at_ms(line: Line) -> int:
    return line[1].at_ms


class LogSearch:
    """Looks through one attempt's log.

    Args:
        since_ms: Unix ms; earlier lines are not wanted.
        position: Where to begin: a record's first byte.
    """

    def __init__(self, choice: LineChoice, since_ms: int = 0, position: int = 0) -> None:
        self.filter: LineFilter[Record] = LineFilter(choice)
        self.position = position
        self._since_ms = since_ms
        self._before_ms = 0  # time of the record before `position`
        self._until_ms = choice.until_ms or 2**63
        self._pattern = None if choice.level else choice.pattern
        self._text = required_text(choice.grep) if self._pattern is not None else b""
        self._find = block_search(choice.grep)

    def records(self, log: LogFiles) -> Iterator[Record]:
        """The wanted records from where the last call ended to the present end of the log."""
        sizes = dict(log.files)
        while True:
            begin = self.position
            size = sizes.get(begin)
            if size:
                following = bisect_right(log.files, (begin, size))
                log.place.expect(log.files[following : following + AHEAD])
            piece = log.place.open(begin, size) if size else None
            if isinstance(piece, PackedReader):
                yield from self._of_piece(begin, piece)
                piece.close()
                if self.position != begin:
                    continue
            elif piece is not None:
                piece.close()
            for record in log.read(begin, self._since_ms, self._before_ms):
                self.position, self._before_ms = record.end, record.at_ms
                yield from self.filter.take(record)
                if record.end in sizes:
                    break  # a piece begins here, which may be packed
            if self.position not in sizes or self.position == begin:
                return

    def _of_piece(self, start: int, piece: PackedReader) -> Iterator[Record]:
        """The wanted records of the piece's blocks, up to the first that is damaged or no records."""
        for number, block in enumerate(piece.piece.blocks):
            if not block.whole:
                return
            simple = not block.special and self.filter.is_between_lines
            if not (simple and self._is_of_another_time(block)):
                data = piece.piece.unpacked(number)
                if data is None:
                    return
                if simple and self._pattern is not None:
                    yield from self._grep(data, start + block.start, self._pattern)
                else:
                    try:
                        yield from self._each(data, start + block.start)
                    except ValueError:
                        return
            self.position, self._before_ms = start + block.end, block.last_ms

    def _is_of_another_time(self, block: Block) -> bool:
        return block.last_ms < self._since_ms or block.first_ms > self._until_ms

    def _each(self, data: bytes, base: int) -> Iterator[Record]:
        for record in decode_all(data):
            if record.at_ms >= self._since_ms:
                yield from self.filter.take(record._replace(end=base + record.end))

    def _grep(self, data: bytes, base: int, pattern: re.Pattern[bytes]) -> Iterator[Record]:
        """The records of a block of whole lines that match."""
        begin, size, text = 0, len(data), self._text
        length_at = _LENGTH.unpack_from
        search = pattern.search
        while begin < size:
            hit = begin
            if text:
                hit = data.find(text, begin)
            elif self._find is not None:
                hit = self._find(data, begin)
            if hit < 0:
                return
            end = begin + RECORD_OVERHEAD + length_at(data, begin + _LENGTH_AT)[0]
            while end <= hit:
                begin = end
                end = begin + RECORD_OVERHEAD + length_at(data, begin + _LENGTH_AT)[0]
            if search(data[begin + _DATA_AT : end - _TRAILER_BYTES]):
                for record in decode_all(data[begin:end]):
                    if self._since_ms <= record.at_ms <= self._until_ms:
                        yield record._replace(end=base + end)
            begin = end
