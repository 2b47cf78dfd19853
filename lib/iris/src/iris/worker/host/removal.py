"""Removes tasks' files of any depth and mode."""

import itertools
import logging
import os
import stat
from collections.abc import Iterable

logger = logging.getLogger(__name__)


def remove_tree(path: str) -> None:
    """Remove a file, or a directory of any depth and modes; log a path that cannot be removed.

    Directories are moved next to `path` before they are emptied, so neither depth nor path length matters. Links are
    not followed, so a process that writes in them meanwhile cannot make this remove or change other files.
    """
    waiting = [path]
    names = (f"{path}.{number}" for number in itertools.count())
    while waiting:
        directory = waiting.pop()
        try:
            if not stat.S_ISDIR(os.lstat(directory).st_mode):
                os.unlink(directory)
                continue
            waiting += _empty(directory, names)
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s cannot be removed: %s", directory, error)


def _empty(directory: str, names: Iterable[str]) -> list[str]:
    """Unlink the files of a directory and move its directories to `names`; return their new paths."""
    moved = []
    descriptor = _open_directory(directory)
    try:
        os.fchmod(descriptor, 0o700)
        with os.scandir(descriptor) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    target = next(iter(names))
                    move_away(entry.name, target, descriptor)
                    moved.append(target)
                else:
                    os.unlink(entry.name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    return moved


def _open_directory(name: str) -> int:
    """Open a directory of any mode. Raises OSError, also for a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags)
    except PermissionError:
        # Only of whoever is not root; then what is there can be nobody else's.
        os.chmod(name, 0o700)
        return os.open(name, flags)


def move_away(path: str, target: str, parent: int | None = None) -> None:
    """Rename a file or directory of any mode. Raises OSError.

    Args:
        path: The file.
        target: Its new path, relative to the working directory.
        parent: Descriptor of the directory that `path` is relative to.
    """
    try:
        os.rename(path, target, src_dir_fd=parent)
    except PermissionError:
        if stat.S_ISLNK(os.stat(path, dir_fd=parent, follow_symlinks=False).st_mode) or os.geteuid() == 0:
            raise
        os.chmod(path, 0o700, dir_fd=parent)  # moving a directory writes to it: to its ".."
        os.rename(path, target, src_dir_fd=parent)
