"""Read-only access to directories and files of any storage, for commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from marin.stored_files import modified_of, reading
from rigging.filesystem import CrossRegionGuardedFS, local_path, url_to_fs
from rigging.filesystem.location import path_in
from rigging.process.parallel import map_in_threads

T = TypeVar("T")
R = TypeVar("R")


def size_of(path: str) -> int | None:
    """Return the current size of a file; None if it does not exist."""
    entry = _entry(path)
    return None if entry is None else int(entry["size"] or 0)


def modified_at(path: str) -> float | None:
    """Return a file's modification time in seconds since the epoch; None if storage does not report it."""
    entry = _entry(path)
    return None if entry is None else modified_of(entry)


def _entry(path: str) -> dict[str, Any] | None:
    local = local_path(path)
    try:
        if local is not None:
            found = os.stat(local)
            return {"size": found.st_size, "mtime": found.st_mtime}
        with reading(path):
            fs, remote = url_to_fs(path)
            fs.invalidate_cache()
            return dict(fs.info(remote))
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_in_another_region(path: str) -> bool:
    """Return whether reading a path would be charged as a transfer between regions."""
    if local_path(path) is not None:
        return False
    with reading(path):
        fs, remote = url_to_fs(path)
        return isinstance(fs, CrossRegionGuardedFS) and fs.is_cross_region(remote)


def read_part(path: str, start: int, end: int) -> bytes:
    """Return the bytes of a file from `start` to `end`, or to its end; b"" if there are none.

    Args:
        path: The file.
        start: The first byte.
        end: The byte after the last.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    if start >= end:
        return b""
    local = local_path(path)
    if local is not None:
        with open(local, "rb") as file:
            file.seek(start)
            return file.read(end - start)
    with reading(path):
        fs, remote = url_to_fs(path)
        content: bytes = fs.cat_file(remote, start=start, end=end)
        return content


def read_ends(path: str, most: int) -> tuple[bytes, bytes, int] | None:
    """Return the first and the last `most` bytes of a file, and its size; None if it does not exist."""
    local = local_path(path)
    if local is None:
        size = size_of(path)
        if size is None:
            return None
        head = read_part(path, 0, min(size, most))
        return head, head if size <= most else read_part(path, size - most, size), size
    try:
        descriptor = os.open(local, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        head = os.read(descriptor, most)
        if len(head) < most:
            return head, head, len(head)
        size = os.fstat(descriptor).st_size
        return head, os.pread(descriptor, most, max(0, size - most)), size
    finally:
        os.close(descriptor)


def each(read: Callable[[T], R], items: Sequence[T], root: str) -> list[R]:
    """Call `read` for each item: one by one on local disks, concurrently on other storage.

    Args:
        read: The function.
        items: Its arguments.
        root: The location of the items.
    """
    if local_path(root) is not None:
        return [read(item) for item in items]
    return map_in_threads(read, items)


def below(directory: str, name: str) -> str:
    """Return the path of a name in a directory."""
    return path_in(directory, name)
