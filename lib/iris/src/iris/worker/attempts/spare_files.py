"""Small files, to be used again: making and removing them costs up to milliseconds."""

import itertools
import os
import stat
from typing import Final

_MOST: Final = 1000
_FILE_MODE: Final = stat.S_IFREG | 0o600


class SpareFiles:
    """Small files of mode 0600, written anew under another name.

    Args:
        place: Where they wait; must be there.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._names = itertools.count()
        self._spare: list[str] = []
        self._uid = os.getuid()

    def write(self, path: str, content: bytes) -> None:
        """Make `path` a file of this content, at once. Raises OSError."""
        name, descriptor = self._open()
        try:
            os.write(descriptor, content)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)
        os.rename(name, path)

    def _open(self) -> tuple[str, int]:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        if self._spare:
            name = self._spare.pop()
            try:
                return name, os.open(name, flags)
            except FileNotFoundError:
                self._spare.clear()  # they were removed
        name = f"{self._place}/f{next(self._names)}"
        return name, os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600)

    def give(self, path: str) -> None:
        """Take back `path`, which is not used any more; a missing file is no error."""
        try:
            found = os.lstat(path)
            plain = found.st_mode == _FILE_MODE and found.st_uid == self._uid and found.st_nlink == 1
            if plain and len(self._spare) < _MOST:
                kept = f"{self._place}/f{next(self._names)}"
                os.rename(path, kept)
                self._spare.append(kept)
            else:
                os.unlink(path)
        except FileNotFoundError:
            return
