"""Read logs across interruptions, without lost or repeated lines."""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from iris.client.connection.connection import Connection, ReplyStream, Stubs
from iris.client.connection.wire import log_lines
from iris.client.types import LogLine
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.logfilter import ANY_ATTEMPT, LineChoice


@dataclass(frozen=True, slots=True)
class LogSelection:
    """The lines to select."""

    id: str
    include_children: bool = False
    since_ms: int = 0
    max_lines: int = 0
    from_start: bool = False
    follow: bool = False
    choice: LineChoice = field(default_factory=LineChoice)

    def to_wire(self) -> pb.FetchLogsRequest:
        """Return the wire form."""
        return pb.FetchLogsRequest(
            id=self.id,
            include_children=self.include_children,
            since_ms=self.since_ms,
            max_lines=self.max_lines,
            from_start=self.from_start,
            follow=self.follow,
            grep=self.choice.grep,
            level=self.choice.level,
            until_ms=self.choice.until_ms,
            attempt=None if self.choice.attempt == ANY_ATTEMPT else self.choice.attempt,
        )


def read_logs(connection: Connection, query: LogSelection) -> Iterator[LogLine]:
    """Yield the lines of a query. Closing the iterator ends the call.

    Raises:
        NotFound: The job or task does not exist.
        ControllerUnreachable: The controller stayed unreachable.
    """
    memory = ReplayFilter(query)

    def begin(c: Stubs) -> ReplyStream[pb.LogBatch]:
        # A call without a deadline: keepalive notices a dead controller.
        timeout = None if query.follow else c.timeout
        return c.jobs.FetchLogs(memory.next_query().to_wire(), metadata=c.metadata, timeout=timeout)

    with contextlib.closing(connection.stream(begin)) as batches:
        for line in itertools.chain.from_iterable(map(log_lines, batches)):
            if memory.is_new(line):
                yield line
                # In the middle of a message: after an interruption more was asked for than is wanted.
                if memory.is_complete():
                    return


@dataclass(slots=True)
class _Seen:
    """The delivered part of an attempt's output: the first line, the number of lines, and the number of repeated
    ones.
    """

    first: LogLine
    count: int
    replayed: int


class ReplayFilter:
    """Distinguish new lines from those that a repeated query sends again.

    An attempt's log only grows, so the filter skips as many lines as were delivered.
    """

    def __init__(self, query: LogSelection) -> None:
        self._query = query
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._earliest_ms = 0
        self._delivered = 0
        self._interrupted = False

    def next_query(self) -> LogSelection:
        """Return the query to send now. After an interruption it begins at or before the first delivered line."""
        if not self._seen:
            return self._query
        self._interrupted = True
        for seen in self._seen.values():
            seen.replayed = 0
        # The tail was cut once; later queries begin where it did.
        since_ms = self._earliest_ms if self._cut_tail() else self._query.since_ms
        return replace(self._query, since_ms=since_ms, max_lines=0, from_start=True)

    def is_new(self, line: LogLine) -> bool:
        """Return whether the line is new, and record it as delivered."""
        key = (line.task_id, line.attempt)
        seen = self._seen.get(key)
        if seen is None:
            if self._interrupted and self._cut_tail() and line.at_ms < self._earliest_ms:
                return False
            self._seen[key] = _Seen(line, 1, 1)
            self._earliest_ms = min(self._earliest_ms, line.at_ms) if self._delivered else line.at_ms
            self._delivered += 1
            return True
        if seen.replayed == 0 and line != seen.first:
            return False
        seen.replayed += 1
        if seen.replayed <= seen.count:
            return False
        seen.count = seen.replayed
        self._delivered += 1
        return True

    def is_complete(self) -> bool:
        """Return whether a limited query has all its lines. An interrupted query is repeated without the limit."""
        query = self._query
        return bool(query.max_lines and query.from_start and not query.follow and self._delivered >= query.max_lines)

    def _cut_tail(self) -> bool:
        return bool(self._query.max_lines and not self._query.from_start)
