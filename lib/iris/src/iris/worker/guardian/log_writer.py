"""Writing a task's output: a growing file of log records, one a line, made with the first byte."""

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


class LogWriter:
    """Appends one attempt's output to its log. `size` bytes are written; a reader may have all of them at once."""

    __slots__ = ("_descriptor", "_path", "_stderr", "_stdout", "error", "size")

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._stdout = LineSplitter(False)
        self._stderr = LineSplitter(True)
        self.size = 0
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
        """The streams have ended: `size` is final, and the file is closed."""
        self._write(self._stdout.close(at_ms))
        self._write(self._stderr.close(at_ms))
        self.close()

    def close(self) -> None:
        """Close the file; what comes later opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
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
