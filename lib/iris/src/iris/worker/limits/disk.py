"""The disk usage of an attempt's directories, measured in small steps."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

_BLOCK_BYTES: Final = 512
_DELETED: Final = " (deleted)"
"""Suffix of an open file's name in /proc after its last link was removed."""


class DiskScan:
    """One walk through some directories, without other file systems mounted below them.

    Deleted files that are still open count, because they still take space. Deleted files that are only mapped do not
    count, because /proc shows them only to root.

    Args:
        places: The directories.
        seen_as: Paths under which the processes see parts of them.
        pids: Returns the processes that may have open files there; called once, after the walk. None to ignore deleted
            files.
    """

    def __init__(
        self,
        places: Sequence[str],
        seen_as: Sequence[str] = (),
        pids: Callable[[], Iterable[int]] | None = None,
    ) -> None:
        self.total_bytes = 0
        self.deleted_bytes = 0
        """The bytes of the total that are in deleted files."""
        self.entries = 0
        self._below = tuple(f"{place.rstrip('/')}/" for place in (*places, *seen_as))
        self._pids = pids
        self._steps = self._walk(places)
        self._linked: set[tuple[int, int]] = set()

    @property
    def looks_for_deleted(self) -> bool:
        return self._pids is not None

    def go_on(self, entries: int) -> bool:
        """Process up to this many more entries; return whether the scan is complete."""
        return any(next(self._steps, None) is None for _ in range(entries))

    def _walk(self, places: Sequence[str]) -> Iterator[bool]:
        pending: list[tuple[str, int]] = []
        for place in places:
            try:
                pending.append((place, os.lstat(place).st_dev))
            except OSError:
                continue
        while pending:
            directory, device = pending.pop()
            try:
                entries = os.scandir(directory)
            except OSError:
                continue  # removed meanwhile, or not to be read
            with entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                        is_directory = entry.is_dir(follow_symlinks=False)
                    except OSError:
                        continue
                    if is_directory:
                        if status.st_dev == device:
                            pending.append((entry.path, device))
                    elif status.st_nlink > 1:
                        if (status.st_dev, status.st_ino) in self._linked:
                            continue
                        self._linked.add((status.st_dev, status.st_ino))
                    self.total_bytes += status.st_blocks * _BLOCK_BYTES
                    self.entries += 1
                    yield True
        yield from self._deleted()

    def _deleted(self) -> Iterator[bool]:
        if self._pids is None:
            return
        for pid in self._pids():
            try:
                descriptors = os.listdir(f"/proc/{pid}/fd")
            except OSError:
                continue  # it has ended, or is another user's
            for descriptor in descriptors:
                self.entries += 1
                found = self._bytes_if_deleted(f"/proc/{pid}/fd/{descriptor}")
                self.deleted_bytes += found
                self.total_bytes += found
                yield True

    def _bytes_if_deleted(self, path: str) -> int:
        try:
            name = os.readlink(path)
            if not name.endswith(_DELETED) or not name.startswith(self._below):
                return 0
            status = os.stat(path)
        except OSError:
            return 0  # closed meanwhile
        key = (status.st_dev, status.st_ino)
        if status.st_nlink or not stat.S_ISREG(status.st_mode) or key in self._linked:
            return 0
        self._linked.add(key)
        return status.st_blocks * _BLOCK_BYTES


def disk_room(place: str) -> tuple[int, int]:
    """Return the free bytes of a directory's file system, and its size. Raises OSError."""
    status = os.statvfs(place)
    return status.f_bfree * status.f_frsize, status.f_blocks * status.f_frsize
