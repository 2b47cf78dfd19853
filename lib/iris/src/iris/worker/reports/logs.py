"""The worker's side of an attempt's log: how much was written, sent and acknowledged."""

import contextlib
import os
from pathlib import Path
from typing import ClassVar

from iris.worker.output.log_room import is_short, punch


class AttemptLog:
    """The log of one attempt on this host's disk, shipped from any offset. `guardian.log_writer` writes it.

    `size` is the number of bytes written; `sent` and `acked` are the offsets sent to and acknowledged by the
    controller.
    """

    LOOK_EVERY_BYTES: ClassVar = 256 * 1024
    KEPT_BYTES: ClassVar = 16 * 1024 * 1024

    __slots__ = ("_descriptor", "_finished", "_given_back", "_looked_at", "_path", "_words", "acked", "sent", "size")

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._finished = False
        self._words = b""  # what the file has no room for: it comes after the file
        self._given_back = 0
        self._looked_at = 0
        self.size = 0
        self.sent = 0
        self.acked = 0

    def grew(self, size: int) -> bool:
        """Record that the file has grown to `size` bytes; return whether any are unsent."""
        self.size = size
        return size > self.sent

    def finish(self) -> None:
        """Record that the log is complete."""
        self._finished = True
        self.release_if_done()

    def read(self, offset: int, count: int) -> bytes:
        """Return at most `count` bytes from `offset`, fewer only at the end."""
        if offset >= self.size:
            return b""
        in_file = self.size - len(self._words)
        if offset >= in_file:
            return self._words[offset - in_file :][:count]
        return os.pread(self._open(), min(count, in_file - offset), offset)

    def append_words(self, records: bytes) -> None:
        """Append records in memory, after the file is complete."""
        if not self._words:
            self._words = records
            self.size += len(records)

    def acknowledge(self, offset: int) -> None:
        """Record that the controller has all bytes before `offset`.

        If the offset does not grow, the controller has refused the following bytes, for example because it restarted
        with fewer. Shipping then resumes from the offset; the controller drops duplicates.
        """
        offset = min(offset, self.size)
        if offset <= self.acked:
            self.sent = offset
        self.acked = offset
        self.sent = max(self.sent, offset)
        if offset - self._looked_at >= self.LOOK_EVERY_BYTES:
            self._looked_at = offset
            with contextlib.suppress(OSError):
                self._give_back(offset)

    def _give_back(self, offset: int) -> None:
        """Free the disk space of acknowledged bytes; if the disk has enough space, keep the newest part for a while."""
        kept = 0 if is_short(self._path) else self.KEPT_BYTES
        if offset - self._given_back < kept + self.LOOK_EVERY_BYTES:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            punch(descriptor, offset - kept)
        finally:
            os.close(descriptor)
        self._given_back = offset - kept

    def rewind(self, offset: int) -> None:
        """Start a new session: ship from `offset`, because the controller has all bytes before it."""
        self.acked = self.sent = min(offset, self.size)

    def release_if_done(self) -> None:
        """Close the file if it is complete and all bytes were sent."""
        if self._finished and self.sent == self.size:
            self.release()

    def release(self) -> None:
        """Close the file; reading reopens it."""
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
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptor
