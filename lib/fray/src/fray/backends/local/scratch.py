"""Temporary files of a local client. They are removed even after a kill."""

import contextlib
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fray.backends.common.process_owner import ProcessOwner
from rigging.process.file_lock import try_lock

PREFIX = "fray-local-"


class ScratchFolder:
    """A client's temporary files, created on first use and removed with the client or the interpreter.

    After a kill, the next client on this machine that creates such a folder removes them.

    Args:
        directory: The parent directory; None for the default temporary directory.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._owner = ProcessOwner()
        self._folder: str | None = None
        self._remove: Callable[[], object] | None = None
        self._numbers = itertools.count(1)

    def new_path(self, kind: str) -> Path:
        """Return an unused path. It is short, because socket addresses are limited to about a hundred characters."""
        with self._lock:
            if self._folder is None:
                directory = self._directory or tempfile.gettempdir()
                remove_abandoned(directory)
                self._folder, held = _make_folder(directory)
                self._remove = self._owner.at_end(self, partial(_remove_folder, self._folder, held))
            return Path(self._folder, f"{next(self._numbers)}.{kind}")

    def remove(self) -> None:
        """Remove all files. New ones may be created afterwards."""
        with self._lock:
            remove, self._remove, self._folder = self._remove, None, None
        if remove is not None:
            remove()


def remove_abandoned(directory: str) -> None:
    """Remove this user's scratch folders whose lock is free, because their processes are gone."""
    with os.scandir(directory) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in found:
        # Another user's cannot be opened; what cannot be locked is in use, or where there are no locks.
        with contextlib.suppress(OSError):
            descriptor = _open_folder(path)
            try:
                if os.fstat(descriptor).st_uid == os.getuid() and try_lock(descriptor):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _make_folder(directory: str) -> tuple[str, int]:
    """Create a folder and return it with the descriptor of its lock. The kernel releases the lock when this process
    ends.

    Forks share the lock, so the folder exists until the last fork ends.
    """
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=directory)
        try:
            descriptor = _open_folder(path)
        except FileNotFoundError:
            continue  # taken for abandoned by another process, before it could be locked
        try:
            locked = try_lock(descriptor)
        except OSError:
            return path, descriptor  # no locks there, so no process can take it for abandoned
        if locked and os.path.isdir(path):
            return path, descriptor
        os.close(descriptor)  # about to be removed by another process, or removed, likewise


def _open_folder(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove_folder(path: str, descriptor: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)
