"""The last log records of this process, kept in memory for status pages."""

import collections
import itertools
import logging
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BufferedLogRecord:
    """One log record.

    Attributes:
        seq: Grows by one with each record of a buffer.
        timestamp: Seconds since the Unix epoch.
        level: Such as "INFO".
        logger_name: Such as "rigging.lease".
        message: The line as it was logged, without secrets.
    """

    seq: int
    timestamp: float
    level: str
    logger_name: str
    message: str


class LogRingBuffer:
    """Keeps the last `maxlen` records; thread-safe.

    It takes no lock, which a process forked meanwhile would find taken: each step below is one step for all threads.
    """

    def __init__(self, maxlen: int = 5000) -> None:
        self._records: collections.deque[BufferedLogRecord] = collections.deque(maxlen=maxlen)
        self._numbers = itertools.count(1)

    def next_seq(self) -> int:
        """Return the number for one more record."""
        return next(self._numbers)

    def append(self, record: BufferedLogRecord) -> None:
        """Keep a record; the oldest one goes when there are too many."""
        self._records.append(record)

    def add(self, record: logging.LogRecord, message: str) -> None:
        """Keep what `logging` gave, as the line that it became."""
        self.append(BufferedLogRecord(self.next_seq(), record.created, record.levelname, record.name, message))

    def query(self, *, prefix: str | None = None, limit: int = 200) -> list[BufferedLogRecord]:
        """Return the last `limit` records, oldest first, of the loggers whose names begin with `prefix`."""
        return self.query_since(-1, prefix=prefix, limit=limit)

    def query_since(self, last_seq: int, *, prefix: str | None = None, limit: int = 200) -> list[BufferedLogRecord]:
        """Return the last `limit` records that came after number `last_seq`, as `query` does.

        Args:
            last_seq: A record's number; -1: from the first.
            prefix: Only of loggers whose names begin so; None: of all.
            limit: At most so many.
        """
        newer = [record for record in self._records.copy() if record.seq > last_seq]
        found = [record for record in newer if record.logger_name.startswith(prefix or "")]
        return found[-limit:] if limit > 0 else []


_of_this_process = LogRingBuffer()


def get_global_buffer() -> LogRingBuffer:
    """Return the buffer that `configure_logging` fills."""
    return _of_this_process
