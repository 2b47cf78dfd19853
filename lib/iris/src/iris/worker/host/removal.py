"""Removing what tasks have left: any depth, any modes."""

import contextlib
import itertools
import logging
import os
from collections.abc import Iterable

logger = logging.getLogger(__name__)


def remove_tree(path: str) -> None:
    """Remove a file, or a directory of any depth and with any modes; what cannot be removed is logged and stays.

    Directories are moved beside `path` before they are emptied, so that neither depth nor the length of paths matters.
    """
    if os.path.islink(path) or not os.path.isdir(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    waiting = [path]
    names = (f"{path}.{number}" for number in itertools.count())
    while waiting:
        directory = waiting.pop()
        try:
            waiting += _empty(directory, names)
            os.rmdir(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s cannot be removed: %s", directory, error)


def _empty(directory: str, names: Iterable[str]) -> list[str]:
    """Unlink the files of a directory and move its directories to `names`; where these are now."""
    os.chmod(directory, 0o700)
    moved = []
    with os.scandir(directory) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                target = next(iter(names))
                move_away(entry.path, target)
                moved.append(target)
            else:
                os.unlink(entry.path)
    return moved


def move_away(path: str, target: str) -> None:
    """Rename a file or directory that may have any mode. Raises OSError."""
    try:
        os.rename(path, target)
    except PermissionError:
        if os.path.islink(path):
            raise
        os.chmod(path, 0o700)  # moving a directory writes to it: to its ".."
        os.rename(path, target)
