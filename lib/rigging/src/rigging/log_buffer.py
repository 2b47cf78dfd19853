"""The last log records of this process, in memory for status pages."""

import collections
import itertools
import logging
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BufferedLogRecord:
    """One log record.

    Attributes:
        seq: The record's number in its buffer, which grows by one.
        timestamp: Seconds since the Unix epoch.
        level: Such as "INFO".
        logger_name: Such as "rigging.lease".
        message: The logged line, redacted.
    """

    seq: int
    timestamp: float
    level: str
    logger_name: str
    message: str


class LogRingBuffer:
    """Keep the last `maxlen` records; thread-safe.

    It uses no lock: a process forked meanwhile would inherit it locked. Each step below is atomic between threads.
    """

    def __init__(self, maxlen: int = 5000) -> None:
        self._records: collections.deque[BufferedLogRecord] = collections.deque(maxlen=maxlen)
        self._numbers = itertools.count(1)

    def next_seq(self) -> int:
        """Return the number for the next record."""
        return next(self._numbers)

    def append(self, record: BufferedLogRecord) -> None:
        """Store a record, dropping the oldest one when the buffer is full."""
        self._records.append(record)

    def add(self, record: logging.LogRecord, message: str) -> None:
        """Store a `logging` record as its formatted line."""
        self.append(BufferedLogRecord(self.next_seq(), record.created, record.levelname, record.name, message))

    def query(self, *, prefix: str | None = None, limit: int = 200) -> list[BufferedLogRecord]:
        """Return the last `limit` records, oldest first, of loggers whose names begin with `prefix`."""
        return self.query_since(-1, prefix=prefix, limit=limit)

    def query_since(self, last_seq: int, *, prefix: str | None = None, limit: int = 200) -> list[BufferedLogRecord]:
        """Return the last `limit` records after number `last_seq`, like `query`.

        Args:
            last_seq: A record's number; -1 starts from the first.
            prefix: Include only loggers whose names begin with this; None for all.
            limit: Maximum number of records.
        """
        newer = [record for record in self._records.copy() if record.seq > last_seq]
        found = [record for record in newer if record.logger_name.startswith(prefix or "")]
        return found[-limit:] if limit > 0 else []


_of_this_process = LogRingBuffer()


def get_global_buffer() -> LogRingBuffer:
    """Return the buffer that `configure_logging` fills."""
    return _of_this_process
