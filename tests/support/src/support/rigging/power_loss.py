"""The content of a disk after a power failure: everything synced, and other changes as chosen by the test."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_Key = tuple[int, int]


class SupportsFileno(Protocol):
    """An open file."""

    def fileno(self) -> int: ...


@dataclass(slots=True)
class _Synced:
    """The part of a directory tree that is certainly on the disk: names of directories and contents of files, by
    inode."""

    names: dict[_Key, dict[str, _Key]] = field(default_factory=dict)
    contents: dict[_Key, bytes] = field(default_factory=dict)
    modes: dict[_Key, int] = field(default_factory=dict)


class LossyDisk:
    """A directory whose disk keeps for certain only synced data. Parent directories are safe.

    This is POSIX's guarantee: syncing a descriptor saves the file's content; syncing the directory saves a name (new,
    renamed or removed). Files from before the recording are safe. Linux only; it cannot see SQLite's syncs.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._synced = _Synced()
        self._held: list[int] = []  # open descriptors, or the number of a removed file would be given to another

    @contextlib.contextmanager
    def recording(self) -> Iterator["LossyDisk"]:
        """Context manager: record the syncs of this process, in all threads."""
        for directory, _, files in os.walk(self._root):
            for path in (directory, *(os.path.join(directory, name) for name in files)):
                self._note(os.open(path, os.O_RDONLY))
        fsync, fdatasync = os.fsync, os.fdatasync

        def recorded(fd: int | SupportsFileno) -> None:
            fsync(fd)
            number = fd if isinstance(fd, int) else fd.fileno()
            self._note(os.open(f"/proc/self/fd/{number}", os.O_RDONLY))

        os.fsync = os.fdatasync = recorded
        try:
            yield self
        finally:
            os.fsync, os.fdatasync = fsync, fdatasync

    def after_power_loss(self, target: Path, *, names_survive: bool) -> Path:
        """Write the content after a power failure now to `target`, and return it.

        Unsynced contents are lost. Either all changes of names are on the disk, or only synced ones.
        """
        self._write(_key(os.stat(self._root)), self._root, target, names_survive)
        return target

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _note(self, descriptor: int) -> None:
        self._held.append(descriptor)
        status = os.fstat(descriptor)
        key = _key(status)
        self._synced.modes[key] = status.st_mode & 0o7777
        if os.path.isdir(descriptor):
            self._synced.names[key] = {
                entry.name: _key(entry.stat(follow_symlinks=False)) for entry in os.scandir(descriptor)
            }
            return
        with open(descriptor, "rb", closefd=False) as file:
            self._synced.contents[key] = file.read()

    def _write(self, key: _Key, now: Path | None, target: Path, names_survive: bool) -> None:
        """Write one directory, whose current path is `now` if it still exists."""
        target.mkdir(parents=True)
        names = self._synced.names.get(key, {})
        if names_survive and now is not None:
            names = {path.name: _key(path.lstat()) for path in now.iterdir()}
        for name, inner in names.items():
            place = now / name if now is not None and (now / name).exists() else None
            if inner in self._synced.names or (place is not None and place.is_dir()):
                self._write(inner, place, target / name, names_survive)
                continue
            (target / name).write_bytes(self._synced.contents.get(inner, b""))
            (target / name).chmod(self._synced.modes.get(inner, 0o600))


def _key(status: os.stat_result) -> _Key:
    return status.st_dev, status.st_ino
