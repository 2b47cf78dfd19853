"""Atomic outputs of functions that take a path."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from typing import Final

from rigging.errors import JobFailed
from rigging.filesystem import TEMPORARY_PREFIX, local_path, upload_file, url_to_fs

_FOLDER: Final = f"{TEMPORARY_PREFIX}map-"
_SCRATCH: Final = "marin-map-files-"


class OutputWriter:
    """Give functions local paths to write to, and move the results into place.

    A local output is written in a private folder beside it and renamed when complete. Any other is written in a
    temporary folder on this machine and uploaded by one put. The temporary file keeps the output's name, whose
    extension may matter.
    """

    def __init__(self) -> None:
        self._name = f"{_FOLDER}{uuid.uuid4().hex[:12]}"
        self._folders: set[str] = set()
        self._scratch: str | None = None

    def __enter__(self) -> OutputWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def exists(self, output: str) -> bool:
        """Return whether the output exists."""
        path = local_path(output)
        if path is not None:
            return os.path.isfile(path)
        fs, remote = url_to_fs(output)
        return bool(fs.isfile(remote))

    @contextlib.contextmanager
    def writing(self, output: str) -> Iterator[str]:
        """Context manager: yield a path to write to. The file is moved into place after the block, or discarded if the
        block raises.

        Other files in its folder are removed.

        Raises:
            JobFailed: No file was written to that path.
        """
        path = local_path(output)
        folder = self._scratch_folder() if path is None else self._folder_beside(path)
        place = os.path.join(folder, os.path.basename(output if path is None else path))
        lock = _lock(folder)
        try:
            yield place
            if not os.path.isfile(place):
                raise JobFailed(f"the function wrote no file to its output path {place}")
            if path is None:
                upload_file(place, output)
            else:
                _put_in_place(place, path)
        finally:
            _empty(folder)
            if lock is not None:
                os.close(lock)

    def _folder_beside(self, path: str) -> str:
        folder = os.path.join(os.path.dirname(path), self._name)
        # Made each time: the function or a cleaner of temporary files may have removed the last one.
        os.makedirs(folder, exist_ok=True)
        self._folders.add(folder)
        return folder

    def _scratch_folder(self) -> str:
        if self._scratch is None:
            _remove_unlocked(tempfile.gettempdir(), _SCRATCH)
            self._scratch = tempfile.mkdtemp(prefix=_SCRATCH)
            self._folders.add(self._scratch)
        os.makedirs(self._scratch, mode=0o700, exist_ok=True)
        return self._scratch


def remove_abandoned(folder: str) -> None:
    """Remove leftovers of killed writers in a local output folder. Running writers are unaffected."""
    _remove_unlocked(folder, _FOLDER)


def _remove_unlocked(parent: str, prefix: str) -> None:
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix) or entry.is_symlink():
                continue
            lock = _lock(entry.path)
            if lock is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _lock(folder: str) -> int | None:
    """Lock a folder until the descriptor is closed or its process ends. Return None if another process holds the lock,
    or locks are not supported.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _put_in_place(place: str, path: str) -> None:
    """Give a complete file its name. An existing output, from a worker considered gone, is kept."""
    try:
        os.link(place, path)
        return
    except FileExistsError:
        if os.path.isfile(path):
            return
    except OSError:
        # A filesystem without links.
        pass
    os.replace(place, path)


def _empty(folder: str) -> None:
    """Remove all files and folders that a function left there."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
