"""Finds the requested lines of logs on disk, if possible without examining each line.

A packed block is skipped if no line can match: all lines are of other times, or the block lacks a text that every match
contains. In a block with that text, only the records around it are examined.
"""

import heapq
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

import re2

from iris.controller.logs.files import LogFiles
from iris.controller.logs.store import LogKey, LogStore
from iris.rpc.logfilter import LineChoice, LineFilter, finds_in_blocks, required_text
from iris.rpc.logformat import Record, Span, decode_all, encode_record, matching

Line = tuple[LogKey, Record]
Part = tuple[LogKey, Span]
"""Some records of one log."""

MERGED: Final = 64
"""Maximum number of logs to merge by time; more logs come one after another."""

# What both engines take alike for bytes, as far as that is easily seen: `\s`, for one, has a character less in RE2.
_DIFFERENT: Final = re.compile(r"[^\x00-\x7f]|\\[^dDwWnt\W]|\{,|\[\[?:|\[\^?\]")


def in_turns(sources: Sequence[Iterator[Part]], most: int = MERGED) -> Iterator[Part]:
    """Yield the records of several logs, merged by time. For more than `most` logs, one after another."""
    return chain.from_iterable(sources) if len(sources) == 1 or len(sources) > most else _merged(sources)


def _merged(sources: Sequence[Iterator[Part]]) -> Iterator[Part]:
    """Merge parts by time, splitting a part where another log's record comes between."""
    heap: list[tuple[int, int, LogKey, Span, int]] = []
    numbers: Iterable[int] = range(len(sources))
    while True:
        for number in numbers:
            for key, span in sources[number]:
                heapq.heappush(heap, (span.begins_ms, number, key, span, 0))
                break
        if not heap:
            return
        _, number, key, span, begin = heapq.heappop(heap)
        end, next_ms = span.next_later(begin, heap[0][0] if heap else span.last_ms)
        yield key, span.part(begin, end)
        numbers = (number,)
        if end < len(span.data):
            heapq.heappush(heap, (next_ms, number, key, span, end))
            numbers = ()


def last_lines(logs: Iterable[Iterable[Line]], most: int) -> list[Line]:
    """Return the last lines of several logs, by time."""
    kept: list[Line] = []
    for lines in logs:
        kept = list(heapq.merge(kept, lines, key=_at_ms))[-most:]
    return kept


def encoded(lines: Iterable[Line]) -> Iterator[tuple[LogKey, bytes]]:
    """Return lines as records, combining consecutive lines of one log."""
    for key, group in groupby(lines, itemgetter(0)):
        yield key, b"".join(encode_record(record) for _, record in group)


@dataclass(slots=True)
class FirstLines:
    """Passes a limited number of lines."""

    left: int

    def of(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield the parts up to the last allowed line."""
        for key, span in parts if self.left else ():
            first, count = span.first(self.left)
            self.left -= count
            yield key, first
            if not self.left:
                return


@dataclass(slots=True)
class Search:
    """Searches logs. A later round yields only new lines.

    Args:
        since_ms: Unix ms. Earlier lines are skipped.
        max_lines: Maximum number of lines from the end of the first round, which new lines then follow; or of the first
            lines with `from_start`. 0 for all.
    """

    store: LogStore
    choice: LineChoice
    since_ms: int = 0
    max_lines: int = 0
    from_start: bool = False
    _logs: "dict[LogKey, LogSearch]" = field(default_factory=dict)
    _first: FirstLines | None = None
    _rounds: int = 0

    @property
    def has_all(self) -> bool:
        """Return whether all allowed lines were delivered."""
        return self._first is not None and not self._first.left

    @property
    def _wants_tail(self) -> bool:
        return self.max_lines > 0 and not self.from_start and self._rounds == 1

    def round(self, keys: list[LogKey], positions: Mapping[LogKey, int], last: bool) -> Iterator[tuple[LogKey, bytes]]:
        """Yield the matching lines of these logs since the last round, merged by time.

        Args:
            keys: The logs.
            positions: Where to start in logs whose beginnings were read elsewhere.
            last: Whether this is the last round, so that unfinished lines are included.
        """
        self._rounds += 1
        for job_id in {key[0] for key in keys}:
            self.store.release(job_id)  # what was known of its files
        parts = in_turns([self._of_log(key, positions.get(key, 0), last) for key in keys])
        if self._wants_tail:
            lines = ((key, record) for key, span in parts for record in span.records())
            return encoded(deque(lines, self.max_lines))
        if self.max_lines and self.from_start:
            self._first = self._first or FirstLines(self.max_lines)
            parts = self._first.of(parts)
        return ((key, span.data) for key, span in parts)

    def _of_log(self, key: LogKey, begin: int, last: bool) -> Iterator[Part]:
        log, search = self.store.log(key), self._logs.get(key)
        if search is None:
            if self._wants_tail and not self.choice.looks_at_lines:
                begin = log.tail_start(self.max_lines, self.since_ms)
            search = self._logs[key] = LogSearch(self.choice, self.since_ms, begin)
        for span in search.spans(log, last):
            yield key, span


def _at_ms(line: Line) -> int:
    return line[1].at_ms


class LogSearch:
    """Searches one attempt's log.

    Args:
        since_ms: Unix ms. Earlier lines are skipped.
        position: The offset to start from: a record's first byte.
    """

    def __init__(self, choice: LineChoice, since_ms: int = 0, position: int = 0) -> None:
        self._filter: LineFilter[Record] = LineFilter(choice)
        self._position = position
        self._time_ms = since_ms, choice.until_ms
        self._before_ms = 0  # time of the record before the position
        self._looks_at_lines = bool(choice.level or choice.grep)
        self._pattern = None if choice.level else choice.pattern
        self._find = _find_in_blocks(choice.grep)

    def spans(self, log: LogFiles, last: bool) -> Iterator[Span]:
        """Yield the matching records between the last call's end and the current end of the log.

        Args:
            log: The log.
            last: Whether this is the last call, so that unfinished lines are included.
        """
        end = log.complete_size()
        for span in log.spans(self._position, *self._time_ms, self._before_ms):
            self._position, self._before_ms = span.end, span.last_ms
            if found := self._wanted(span):
                yield span._replace(data=found)
        self._position = max(self._position, end)
        for record in self._filter.finish() if last else ():
            yield Span(encode_record(record), end, record.at_ms, record.at_ms, False)

    def _wanted(self, span: Span) -> bytes:
        if not self._looks_at_lines:
            return span.data
        if span.plain and self._pattern is not None and self._filter.is_between_lines:
            return matching(span.data, self._find, self._pattern.search)
        take = self._filter.take
        return b"".join(encode_record(piece) for record in decode_all(span.data) for piece in take(record))


def _find_in_blocks(pattern: str) -> Callable[[bytes, int], int]:
    """Return the fastest function for `block_search`."""
    text = required_text(pattern)
    if text:
        return lambda data, begin: data.find(text, begin)
    return block_search(pattern) or (lambda _, begin: begin)


def block_search(pattern: str) -> Callable[[bytes, int], int] | None:
    """Return a function that finds the next possible match in a block from an offset; -1 for none.

    Every match is at or after the returned offset. Check candidates line by line. Uses RE2 where possible, which is six
    to thirteen times as fast as Python's own engine (docs/performance.md).

    Args:
        pattern: A valid Python regular expression.

    Returns:
        The function; None if the expression may match differently in a block: then check each line separately.
    """
    if not finds_in_blocks(pattern):
        return None
    try:
        search = _as_re2(pattern)
    except re2.error:
        search = re.compile(pattern.encode()).search

    def find(data: bytes, begin: int) -> int:
        found = search(data, begin)
        return -1 if found is None else int(found.start())

    return find


def _as_re2(pattern: str) -> Callable[[bytes, int], "re.Match[bytes] | None"]:
    if _DIFFERENT.search(pattern):
        raise re2.error("may mean something else")
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    search: Callable[[bytes, int], re.Match[bytes] | None] = re2.compile(pattern.encode(), options).search
    return search
