"""A task's output as a growing file of records that can be shipped from any offset."""

import contextlib
import os
from pathlib import Path
from typing import Final

from iris.rpc.logformat import encode

PIECE_BYTES: Final = 64 * 1024
"""A line longer than this is stored in pieces."""


class LineSplitter:
    """Cuts one stream into log records: one line each, long or unfinished lines in partial pieces."""

    __slots__ = ("_is_stderr", "_open", "_rest")

    def __init__(self, is_stderr: bool) -> None:
        self._is_stderr = is_stderr
        self._rest = b""
        self._open = False  # the last record was partial, so its line is not closed yet

    @property
    def has_rest(self) -> bool:
        """Whether bytes are held back that belong to a line without its end."""
        return bool(self._rest)

    def feed(self, data: bytes, at_ms: int) -> bytes:
        """The records that `data` completes."""
        lines = (self._rest + data).split(b"\n")
        rest = lines.pop()
        records: list[bytes] = []
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
        """What is held back, as a partial record: somebody may be waiting for a prompt or a progress bar."""
        if not self._rest:
            return b""
        rest, self._rest, self._open = self._rest, b"", True
        return encode(self._is_stderr, at_ms, rest, partial=True)

    def close(self, at_ms: int) -> bytes:
        """What is held back, as the stream's last line; also ends a line that was flushed in part."""
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


class AttemptLog:
    """The log of one attempt on this host's disk; made with the first byte.

    `size` is what was written; `sent` and `acked` are how far the controller was sent it and said to have it.
    """

    __slots__ = ("_descriptor", "_finished", "_path", "_stderr", "_stdout", "acked", "error", "sent", "size")

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._finished = False
        self._stdout = LineSplitter(False)
        self._stderr = LineSplitter(True)
        self.size = 0
        self.sent = 0
        self.acked = 0
        self.error = ""
        """Why output was lost; empty as long as none was."""

    @property
    def has_rest(self) -> bool:
        return self._stdout.has_rest or self._stderr.has_rest

    def feed(self, is_stderr: bool, data: bytes, at_ms: int) -> None:
        """Store output as it was read."""
        self._write((self._stderr if is_stderr else self._stdout).feed(data, at_ms))

    def flush(self, at_ms: int) -> None:
        """Store unfinished lines as partial records."""
        self._write(self._stdout.flush(at_ms))
        self._write(self._stderr.flush(at_ms))

    def finish(self, at_ms: int) -> None:
        """The streams have ended: `size` is final."""
        self._write(self._stdout.close(at_ms))
        self._write(self._stderr.close(at_ms))
        self._finished = True
        self.release_if_done()

    def read(self, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset`, fewer only at the end."""
        if offset >= self.size:
            return b""
        return os.pread(self._open(), min(count, self.size - offset), offset)

    def acknowledge(self, offset: int) -> None:
        """The controller has everything before `offset`.

        An offset that does not grow means that the controller refused what came after it (it restarted with less than
        it had, say), so shipping goes on from there; it drops what it has already.
        """
        offset = min(offset, self.size)
        if offset <= self.acked:
            self.sent = offset
        self.acked = offset
        self.sent = max(self.sent, offset)

    def rewind(self, offset: int) -> None:
        """A new session: the controller has everything before `offset`; ship from there."""
        self.acked = self.sent = min(offset, self.size)

    def release_if_done(self) -> None:
        """Close the file when nothing more is to be written, and everything was sent."""
        if self._finished and self.sent == self.size:
            self.release()

    def release(self) -> None:
        """Close the file; reading opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def remove(self) -> None:
        """Delete the log from this host."""
        self.release()
        if self.size:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    def _open(self) -> int:
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        return self._descriptor

    def _write(self, records: bytes) -> None:
        if not records or self.error:
            return  # after a gap the rest would not line up with the offsets already promised
        try:
            written = os.write(self._open(), records)
            while written < len(records):
                written += os.write(self._open(), records[written:])
        except OSError as error:
            self.error = f"output was lost: writing {self._path} failed: {error.strerror}"
            return
        self.size += len(records)
