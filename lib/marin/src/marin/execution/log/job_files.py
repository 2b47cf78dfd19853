"""The files of a step's log, written by the processes of its jobs, on any storage.

On disks each process appends to `.log` itself. On object stores a file is written as a whole: a single replica writes
`.log` under the lease of the run that submitted it. Several replicas, or a job whose lease another run now holds (it
has adopted the job), each write a separate file beside it, which a run adds to `.log` later.
"""

from __future__ import annotations

import hashlib
import posixpath
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from marin.execution.lease.fencing import LeaseToken
from marin.execution.log.files import LogFile, UploadedFile, open_log_file
from marin.execution.log.sections import Section
from marin.output_files import ERROR_FILE, LOG_FILE
from rigging.distributed_lock import LeaseLostError
from rigging.filesystem import local_path, read_bytes_or_none, url_to_fs, write_bytes_atomic
from rigging.filesystem.location import path_in

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.02
_LOOK_SECONDS_AT_STORES: Final = 1.0
_PAUSE_PER_LOOK: Final = 5.0


class WritesUnderLease(Protocol):
    """A `LeaseToken`."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the output path. Raise LeaseLostError if the lease is lost."""
        ...


@dataclass(frozen=True, slots=True)
class JobLogFiles:
    """The log files of one process of a step's job.

    Attributes:
        output_path: The step's output path.
        section: Its part of the log.
        is_fresh: Whether there was no earlier attempt, and so no file to append to.
        token: The lease of the run that submitted the job.
    """

    output_path: str
    section: Section
    is_fresh: bool = False
    token: WritesUnderLease | None = None

    def open(self, name: str) -> LogFile:
        """Open `.log` or `.error` for appending."""
        path = path_in(self.output_path, name)
        if local_path(path) is not None:
            return open_log_file(path, self.is_fresh)
        if self.section.replica is not None:
            return UploadedFile(self._own_path(name), True)
        return UploadedFile(path, self.is_fresh, upload=lambda _, content: self._upload(name, content))

    def read(self, name: str = LOG_FILE) -> str:
        """Return the file's content, from this process and others before it."""
        content = b""
        if self.section.replica is None or local_path(self.output_path) is not None:
            content = read_bytes_or_none(path_in(self.output_path, name)) or b""
        if local_path(self.output_path) is None:
            content += read_bytes_or_none(self._own_path(name)) or b""
        return content.decode("utf-8", "backslashreplace")

    def look_until(self, look: Callable[[], T], holds: Callable[[T], bool], seconds: float) -> T:
        """Poll the log until a condition is true or the time expires. Return the last observation."""
        pause = _LOOK_SECONDS if local_path(self.output_path) is not None else _LOOK_SECONDS_AT_STORES
        deadline = time.monotonic() + seconds
        while True:
            looked = time.monotonic()
            seen = look()
            now = time.monotonic()
            if holds(seen) or now >= deadline:
                return seen
            # Each look reads the whole log: the longer that takes, the longer the pause.
            time.sleep(max(pause, _PAUSE_PER_LOOK * (now - looked)))

    def _upload(self, name: str, content: bytes) -> None:
        if self.token is None:
            write_bytes_atomic(path_in(self.output_path, name), content)
            return
        try:
            if self.is_fresh and isinstance(self.token, LeaseToken):
                self.token.write(name, content, is_new=True)
            else:
                self.token.write(name, content)
        except LeaseLostError:
            begin = max(0, content.find(self.section.heading.encode()))
            write_bytes_atomic(self._own_path(name), content[begin:])

    def _own_path(self, name: str) -> str:
        digest = hashlib.md5(self.section.opening.encode(), usedforsecurity=False).hexdigest()[:12]
        return path_in(self.output_path, f"{name}.{digest}")


def take_parts(output_path: str, lease: WritesUnderLease) -> None:
    """Append the separate files of several processes to `.log` and `.error`.

    Args:
        output_path: The step's output path, in an object store.
        lease: The lease for the writes.

    Raises:
        LeaseLostError: The lease is lost.
    """
    fs, root = url_to_fs(output_path)
    there = sorted(str(path) for path in fs.ls(root, detail=False))
    for name in (LOG_FILE, ERROR_FILE):
        parts = [path for path in there if posixpath.basename(path).startswith(f"{name}.")]
        contents = [content for path in parts if (content := fs.cat_file(path))]
        if not contents:
            continue
        # In the order in which the processes began, as their headings say.
        contents.sort(key=lambda content: content.partition(b", ")[2].partition(b", ")[0])
        lease.write(name, (read_bytes_or_none(path_in(output_path, name)) or b"") + b"".join(contents))
        for path in parts:
            fs.rm_file(path)
