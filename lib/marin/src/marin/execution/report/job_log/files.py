"""The files of a step's log as processes of its jobs write them, on any storage.

On disks each process appends to `.log` itself. On object stores a file is written as a whole: the only replica writes
`.log` under the lease of the run that submitted it. Of several replicas, and when another run has that lease by now (it
has adopted the job), each writes a file of its own beside it, which a run adds to `.log` later.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Protocol

from marin.execution.lease.fencing import LeaseToken
from marin.execution.report.job_log.sections import Section
from marin.execution.report.log_files import LocalFile, LogFile, UploadedFile
from marin.output_files import ERROR_FILE, LOG_FILE
from rigging.distributed_lock import LeaseLostError
from rigging.filesystem import local_path, read_bytes_or_none, url_to_fs, write_bytes_atomic
from rigging.filesystem.location import path_in


class WritesUnderLease(Protocol):
    """A `LeaseToken`."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the output path; raises LeaseLostError when the lease is lost."""
        ...


@dataclass(frozen=True, slots=True)
class JobLogFiles:
    """Where a process of a step's job writes.

    Attributes:
        output_path: The step's output path.
        section: Its part of the log.
        is_fresh: There was no attempt before, so that there is nothing to add to.
        token: The lease of the run that submitted the job.
    """

    output_path: str
    section: Section
    is_fresh: bool = False
    token: WritesUnderLease | None = None

    def open(self, name: str) -> LogFile:
        """Open `.log` or `.error`, to add to it."""
        path = path_in(self.output_path, name)
        local = local_path(path)
        if local is not None:
            return LocalFile(local)
        if self.section.replica is not None:
            return UploadedFile(self._own_path(name), True)
        return UploadedFile(path, self.is_fresh, upload=lambda _, content: self._upload(name, content))

    def read(self, name: str = LOG_FILE) -> str:
        """Return what the file has of this process, and of others before it."""
        content = b""
        if self.section.replica is None or local_path(self.output_path) is not None:
            content = read_bytes_or_none(path_in(self.output_path, name)) or b""
        if local_path(self.output_path) is None:
            content += read_bytes_or_none(self._own_path(name)) or b""
        return content.decode("utf-8", "backslashreplace")

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
        return path_in(self.output_path, f"{name}.{_digest(self.section.opening)}")


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:12]


def parts_of(output_path: str, name: str) -> list[str]:
    """Return the files beside `.log` or `.error` that processes have written, by name."""
    fs, root = url_to_fs(output_path)
    try:
        found = fs.ls(root, detail=False)
    except FileNotFoundError:
        return []
    names = sorted(os.path.basename(str(path).rstrip("/")) for path in found)
    return [each for each in names if each.startswith(f"{name}.")]


def take_parts(output_path: str, lease: WritesUnderLease) -> None:
    """Add what several processes have written to files of their own to `.log` and `.error`.

    Args:
        output_path: The step's output path, on an object store.
        lease: Under which they are written.

    Raises:
        LeaseLostError: The lease is lost.
    """
    for name in (LOG_FILE, ERROR_FILE):
        parts = [path_in(output_path, each) for each in parts_of(output_path, name)]
        contents = [content for path in parts if (content := read_bytes_or_none(path))]
        if not contents:
            continue
        # In the order in which the processes began, as their headings say.
        contents.sort(key=lambda content: content.partition(b", ")[2].partition(b", ")[0])
        lease.write(name, (read_bytes_or_none(path_in(output_path, name)) or b"") + b"".join(contents))
        for path in parts:
            fs, remote = url_to_fs(path)
            fs.rm_file(remote)
