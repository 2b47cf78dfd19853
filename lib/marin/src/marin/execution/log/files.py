"""Files that grow while a step runs: appended on local disks, rewritten at intervals on object stores."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from rigging.filesystem import local_path, read_bytes_or_none, write_bytes_atomic

logger = logging.getLogger(__name__)

# The first upload of a log that still grows comes after this time, each later one after twice as long.
FIRST_UPLOAD_SECONDS: Final = 30.0
LAST_UPLOAD_SECONDS: Final = 600.0
# Each upload is of the whole log.
MOST_BYTES: Final = 64 << 20
# More steps may write at once than a process may have files open.
_MOST_OPEN: Final = 128
_SPOOLED_BYTES: Final = 1 << 18


class LogFile(Protocol):
    """A file that text is appended to. Used by one thread at a time."""

    def write(self, content: bytes) -> None:
        """Append content."""
        ...

    def close(self, *, keep: bool) -> None:
        """Complete the file. With `keep` off, do not publish further content."""
        ...


class LocalFile:
    """A file on a local disk. Written text is in it immediately."""

    _open_files = 0

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1

    def write(self, content: bytes) -> None:
        """Append content."""
        descriptor = self._descriptor if self._descriptor >= 0 else self._open()
        _write_all(descriptor, content)
        if self._descriptor < 0:
            if LocalFile._open_files >= _MOST_OPEN:
                os.close(descriptor)
            else:
                LocalFile._open_files += 1  # a limit that may be missed by a few
                self._descriptor = descriptor

    def close(self, *, keep: bool) -> None:
        """Close the file, and restore it if its directory was removed meanwhile."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        LocalFile._open_files -= 1
        try:
            if keep and os.fstat(descriptor).st_nlink == 0:
                again = self._open()
                try:
                    offset = 0
                    while piece := os.pread(descriptor, 1 << 20, offset):
                        _write_all(again, piece)
                        offset += len(piece)
                finally:
                    os.close(again)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self._path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            return os.open(self._path, flags, 0o666)


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


class UploadedFile:
    """A file on an object store.

    Args:
        url: The file.
        is_new: Whether there is no earlier content, which saves a request.
        read: Reads a whole file; None if there is none.
        upload: Writes a whole file.
        uploads: Uploads it at intervals.
    """

    def __init__(
        self,
        url: str,
        is_new: bool,
        read: Callable[[str], bytes | None] = read_bytes_or_none,
        upload: Callable[[str, bytes], object] = write_bytes_atomic,
        uploads: Uploads | None = None,
    ) -> None:
        import tempfile  # most runs are on disks

        self._url = url
        self._is_new = is_new
        self._read = read
        self._upload = upload
        self._uploads = uploads or UPLOADS
        self._guard = threading.Lock()
        self._content = tempfile.SpooledTemporaryFile(max_size=_SPOOLED_BYTES)  # noqa: SIM115
        self._size = self._uploaded = 0
        self._left_out = 0
        self._is_closed = False
        self.pause = FIRST_UPLOAD_SECONDS
        self.due = time.monotonic() + self.pause
        self._uploads.add(self)

    def write(self, content: bytes) -> None:
        """Append content, to be uploaded later. Content beyond `MOST_BYTES` is only counted."""
        with self._guard:
            if self._size + len(content) > MOST_BYTES:
                self._left_out += len(content)
            else:
                self._content.write(content)
                self._size += len(content)

    def close(self, *, keep: bool) -> None:
        """Upload the complete file."""
        self._uploads.remove(self)
        with self._guard:
            self._is_closed = True
            try:
                if keep:
                    self._send()
            finally:
                self._content.close()

    def upload_now(self) -> None:
        """Upload the content if it has grown. A failed upload is retried at the next interval."""
        with self._guard:
            self.pause = min(2 * self.pause, LAST_UPLOAD_SECONDS)
            self.due = time.monotonic() + self.pause
            if not self._is_closed and self._size > self._uploaded:
                self._send()

    def _send(self) -> None:
        if not self._is_new:
            earlier = self._read(self._url) or b""
            own = self._taken()
            self._content.seek(0)
            self._content.truncate()
            self._content.write(earlier + own)
            self._size += len(earlier)
            self._is_new = True
        note = f"=== {self._left_out} more bytes are omitted\n".encode() if self._left_out else b""
        self._upload(self._url, self._taken() + note)
        self._uploaded = self._size

    def _taken(self) -> bytes:
        self._content.seek(0)
        content = self._content.read()
        self._content.seek(0, os.SEEK_END)
        return content


class Uploads:
    """A single thread that uploads growing files when they are due. It ends with the last file."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._files: dict[UploadedFile, None] = {}
        self._is_running = False

    def add(self, file: UploadedFile) -> None:
        """Start uploading a file at intervals."""
        with self._changed:
            self._files[file] = None
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="marin-log-uploads", daemon=True).start()

    def remove(self, file: UploadedFile) -> None:
        """Stop uploading the file."""
        with self._changed:
            self._files.pop(file, None)
            if not self._files:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._files:
                    self._is_running = False
                    return
                # A file that is added meanwhile is due later than these.
                self._changed.wait(max(0.0, min(file.due for file in self._files) - time.monotonic()))
                now = time.monotonic()
                due = [file for file in self._files if file.due <= now]
            for file in due:
                try:
                    file.upload_now()
                # A store that fails now is tried again later; what fails at the end is told.
                except Exception as error:
                    logger.debug("a step's log is not uploaded for now: %s: %s", type(error).__name__, error)


UPLOADS: Final = Uploads()


def open_log_file(path: str, is_fresh: bool) -> LogFile:
    """Return a file to append to, on any storage.

    Args:
        path: The file.
        is_fresh: Whether there is no earlier content.
    """
    local = local_path(path)
    return LocalFile(local) if local is not None else UploadedFile(path, is_fresh)
