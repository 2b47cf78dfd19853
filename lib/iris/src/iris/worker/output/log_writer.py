"""Writes a task's output to a file of log records, one per line; creates the file at the first byte."""

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from iris.rpc.logformat import decode_all, encode, encode_lines, lost_output
from iris.worker.output.log_room import DEFAULT_LIMIT_BYTES, is_nearly_full, stored_bytes

PIECE_BYTES: Final = 64 * 1024
"""A line longer than this is stored in pieces."""
NO_SPACE: Final = "no space left on the worker's disk"

_LOOK_EVERY_BYTES: Final = 256 * 1024
_LAST_BYTES: Final = 64 * 1024


class LineSplitter:
    """Splits one stream into log records: one per line, with long or unfinished lines in partial records."""

    __slots__ = ("_is_stderr", "_open", "_rest")

    def __init__(self, is_stderr: bool) -> None:
        self._is_stderr = is_stderr
        self._rest = b""
        self._open = False  # the last record was partial, so its line is not closed yet

    @property
    def has_rest(self) -> bool:
        """Whether bytes of an unfinished line are buffered."""
        return bool(self._rest)

    def feed(self, data: bytes, at_ms: int) -> bytes:
        """Return the records completed by `data`."""
        lines = (self._rest + data).split(b"\n")
        rest = lines.pop()
        records: list[bytes] = []
        if lines and len(max(lines, key=len)) <= PIECE_BYTES:
            records.append(encode_lines(self._is_stderr, at_ms, lines))
        else:
            for line in lines:
                if len(line) > PIECE_BYTES:
                    line = self._pieces(line, at_ms, records)
                records.append(encode(self._is_stderr, at_ms, line))
        if lines:
            self._open = False
        if len(rest) > PIECE_BYTES:
            rest = self._pieces(rest, at_ms, records)
            self._open = True
        self._rest = rest
        return b"".join(records)

    def flush(self, at_ms: int) -> bytes:
        """Return the buffered bytes as a partial record, because a reader may wait for a prompt or progress bar."""
        if not self._rest:
            return b""
        rest, self._rest, self._open = self._rest, b"", True
        return encode(self._is_stderr, at_ms, rest, partial=True)

    def close(self, at_ms: int) -> bytes:
        """Return the buffered bytes as the stream's last line; also end a line that was flushed in part."""
        if not self._rest and not self._open:
            return b""
        rest, self._rest, self._open = self._rest, b"", False
        return encode(self._is_stderr, at_ms, rest)

    def _pieces(self, line: bytes, at_ms: int, records: list[bytes]) -> bytes:
        start = 0
        while len(line) - start > PIECE_BYTES:
            piece = line[start : start + PIECE_BYTES]
            records.append(encode(self._is_stderr, at_ms, piece, partial=True))
            start += PIECE_BYTES
        return line[start:]


class LogWriter:
    """Appends one attempt's output to its log. The first `size` bytes can be read at any time.

    If the disk is full or the limit is reached, output is dropped and counted. A note in the log states the amount as
    soon as writing is possible again. The last `_LAST_BYTES` of the dropped output are written when the streams end.

    Args:
        limit_bytes: Maximum number of bytes on the disk at a time, without bytes that a reader has released.
        write: Writes to a descriptor, like `os.write`.
        is_full: Returns whether the disk of an open file is nearly full.
    """

    __slots__ = (
        "_checked_at", "_descriptor", "_is_full", "_last", "_limit", "_path", "_pending", "_pending_why",
        "_stderr", "_stdout", "_totals", "_why", "_write_some", "size",
    )  # fmt: skip

    def __init__(
        self,
        path: str | Path,
        limit_bytes: int = 0,
        write: Callable[[int, bytes], int] = os.write,
        is_full: Callable[[int], bool] = is_nearly_full,
    ) -> None:
        self._path = path
        self._write_some = write
        self._is_full = is_full
        self._limit = limit_bytes or DEFAULT_LIMIT_BYTES
        self._descriptor: int | None = None
        self._stdout = LineSplitter(False)
        self._stderr = LineSplitter(True)
        self._checked_at = 0  # size at which the room was looked at last
        self._why = ""  # nothing can be written at present
        self._pending = 0  # bytes of output of which the log does not say yet that they are lost
        self._pending_why = ""
        self._last: deque[bytes] = deque()  # the newest of them
        self._totals: dict[str, int] = {}
        self.size = 0

    @property
    def has_rest(self) -> bool:
        return self._stdout.has_rest or self._stderr.has_rest

    @property
    def lost(self) -> str:
        """How much output is missing from the log, and why; empty if none is."""
        return "; ".join(lost_output(count, why).decode() for why, count in self._totals.items() if count)

    @property
    def unmarked(self) -> str:
        """The part of `lost` that the log does not mention; empty if it mentions all."""
        return lost_output(self._pending, self._pending_why).decode() if self._pending else ""

    def feed(self, is_stderr: bool, data: bytes, at_ms: int) -> None:
        """Store output.

        Args:
            is_stderr: Whether the output is from stderr.
            data: The bytes, which may end anywhere in a line.
            at_ms: Time of the read in Unix ms.
        """
        self._write((self._stderr if is_stderr else self._stdout).feed(data, at_ms), at_ms)

    def note(self, text: str, at_ms: int) -> None:
        """Store a line from iris.

        Args:
            text: The line.
            at_ms: Unix time in ms.
        """
        self._write(encode(True, at_ms, text.encode(errors="replace"), note=True), at_ms)

    def flush(self, at_ms: int) -> None:
        """Store unfinished lines as partial records."""
        self._write(self._stdout.flush(at_ms) + self._stderr.flush(at_ms), at_ms)

    def finish(self, at_ms: int) -> None:
        """Close the file at the end of the streams; `size` is then final."""
        self._write(self._stdout.close(at_ms) + self._stderr.close(at_ms), at_ms)
        if self._pending:
            last = b"".join(self._last)
            self._take_back(last)
            if not self._append(self._note(at_ms) + last):
                self._count(last)
                if self._append(self._note(at_ms)):  # a note alone may find room
                    self._pending = 0
            else:
                self._pending = 0
        self._last.clear()
        self.close()

    def close(self) -> None:
        """Close the file; later output reopens it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        return self._descriptor

    def _write(self, records: bytes, at_ms: int) -> None:
        if not records:
            return
        if self._why or self.size + len(records) - self._checked_at > _LOOK_EVERY_BYTES:
            self._look(len(records))
        if self._why:
            self._lose(records)
            return
        note = self._note(at_ms) if self._pending else b""
        if self._append(note + records):
            self._pending = 0
            self._last.clear()
        else:
            self._lose(records)

    def _look(self, count: int) -> None:
        """Check the limit and the free disk space."""
        self._checked_at = self.size
        why = ""
        try:
            descriptor = self._open()
            if self.size + count > self._limit and stored_bytes(descriptor) + count > self._limit:
                why = f"more than {self._limit:,} bytes waited on the worker's disk for the controller"
            elif self._is_full(descriptor):
                why = NO_SPACE
        except OSError as error:
            why = _reason(error)
        self._why = why

    def _append(self, records: bytes) -> bool:
        """Write all the data or nothing; return False with the reason in `_why`."""
        written = 0
        try:
            descriptor = self._open()
            while written < len(records):
                written += self._write_some(descriptor, records[written:] if written else records)
        except OSError as error:
            self._why = _reason(error)
            if written:
                with contextlib.suppress(OSError):
                    os.truncate(self._path, self.size)
            return False
        self.size += len(records)
        return True

    def _lose(self, records: bytes) -> None:
        self._count(records)
        self._last.append(records)
        kept = sum(map(len, self._last))
        while kept > _LAST_BYTES and len(self._last) > 1:
            kept -= len(self._last.popleft())

    def _count(self, records: bytes, sign: int = 1) -> None:
        count = sign * sum(len(record.data) + (not record.partial) for record in decode_all(records))
        if not self._pending:
            self._pending_why = self._why
        self._pending += count
        self._totals[self._pending_why] = self._totals.get(self._pending_why, 0) + count

    def _take_back(self, records: bytes) -> None:
        self._count(records, -1)

    def _note(self, at_ms: int) -> bytes:
        return (
            encode(True, at_ms, lost_output(self._pending, self._pending_why), note=True) if self._pending > 0 else b""
        )


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NO_SPACE
    return f"it cannot be written on the worker's disk ({error.strerror})"
