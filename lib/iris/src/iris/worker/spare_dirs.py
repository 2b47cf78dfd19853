"""Empty directories, to be used again: making and removing one costs up to milliseconds, renaming it little."""

import contextlib
import itertools
import os
import stat
from typing import Final

_MOST: Final = 64
_MODE: Final = stat.S_IFDIR | 0o700


class SpareDirectories:
    """Empty directories of mode 0700 that were an attempt's, kept in one directory of the same file system.

    Args:
        place: Where they wait; must be there.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._names = itertools.count()
        self._spare: list[str] = []
        self._uid = os.getuid()

    def take(self, path: str) -> None:
        """Make a new, empty directory at `path`. Raises OSError."""
        while self._spare:
            # The name is free, so there is nothing that this could replace.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                os.rename(self._spare.pop(), path)
                return
        os.mkdir(path, 0o700)

    def give(self, path: str) -> bool:
        """Keep what is at `path` if it is as new; False: it is still there, and to be removed in another way."""
        if len(self._spare) >= _MOST:
            return False
        try:
            found = os.lstat(path)
            if found.st_mode != _MODE or found.st_uid != self._uid:
                return False
            with os.scandir(path) as entries:
                if next(entries, None) is not None:
                    return False
            kept = f"{self._place}/{next(self._names)}"
            os.rename(path, kept)
        except OSError:
            return False
        self._spare.append(kept)
        return True
