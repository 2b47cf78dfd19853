"""The worker's side of an attempt's log: how much of it was written, sent to the controller, and acknowledged."""

import contextlib
import os
from pathlib import Path


class AttemptLog:
    """The log of one attempt on this host's disk, to be shipped from any offset. `guardian.log_writer` writes it.

    `size` is what was written; `sent` and `acked` are how far the controller was sent it and said to have it.
    """

    __slots__ = ("_descriptor", "_finished", "_path", "acked", "sent", "size")

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._finished = False
        self.size = 0
        self.sent = 0
        self.acked = 0

    def grew(self, size: int) -> bool:
        """The first `size` bytes are in the file; says whether there is something to send."""
        self.size = size
        return size > self.sent

    def finish(self) -> None:
        """`size` is final."""
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
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return self._descriptor
