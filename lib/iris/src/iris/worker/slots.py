"""Working directories and TMPDIRs that are used again where an attempt left them as it found them.

Making and removing directories costs more than all else that a worker does for a short attempt; most leave theirs
untouched, which two looks tell: a directory's time of change is another once an entry, its mode or an attribute of it
was, and nobody can set it back.
"""

import itertools
import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import Final

_MOST_FREE: Final = 1000
_MODE: Final = stat.S_IFDIR | 0o700
_GRANULE_NS: Final = 50_000_000
"""File systems tell times apart that are further from each other than this."""

_Mark = tuple[int, int, int]


class Slot:
    """The directories of one attempt at a time.

    Args:
        path: Of both; their names are short, because programs put sockets there, whose paths must not exceed 107 bytes.
    """

    __slots__ = ("_is_told_apart", "_marks", "path", "temporary", "working")

    def __init__(self, path: str) -> None:
        self.path = path
        self.working = f"{path}/work"
        self.temporary = f"{path}/tmp"
        self._marks: tuple[_Mark, _Mark] | None = None
        self._is_told_apart = False

    def make(self) -> None:
        """Make the directories. Raises OSError; FileExistsError when the slot is there already."""
        os.mkdir(self.path, 0o700)
        os.mkdir(self.working, 0o700)
        os.mkdir(self.temporary, 0o700)

    def begins(self) -> bool:
        """An attempt is to have it; False: it is not as it was left."""
        if self._look() != self._marks or self._marks is None:
            return False
        # What is done at the very moment of the last change would not show.
        self._is_told_apart = time.time_ns() - max(self._marks[0][2], self._marks[1][2]) > _GRANULE_NS
        return True

    def is_free(self) -> bool:
        """Its attempt has ended: whether another can have it, because nothing was left in it."""
        marks = self._look()
        if marks is None:
            return False
        if marks == self._marks and self._is_told_apart:
            return True
        self._marks = marks
        self._is_told_apart = False
        return _is_as_new(self.working) and _is_as_new(self.temporary)

    def _look(self) -> tuple[_Mark, _Mark] | None:
        try:
            working, temporary = os.lstat(self.working), os.lstat(self.temporary)
        except OSError:
            return None
        return (
            (working.st_ino, working.st_mode, working.st_ctime_ns),
            (temporary.st_ino, temporary.st_mode, temporary.st_ctime_ns),
        )


class Slots:
    """The slots of one worker.

    Args:
        place: The directory that has them.
        discard: Removes what is at a path, soon.
    """

    def __init__(self, place: str, discard: Callable[[str], None]) -> None:
        self._place = place
        self._discard = discard
        self._numbers = itertools.count()
        self._free: list[Slot] = []

    def take(self) -> Slot:
        """A slot whose directories are empty and of mode 0700. Raises OSError."""
        while self._free:
            slot = self._free.pop()
            if slot.begins():
                return slot
            self._discard(slot.path)
        while True:
            slot = Slot(f"{self._place}/{next(self._numbers)}")
            try:
                slot.make()
            except FileExistsError:
                continue  # a former worker's
            return slot

    def give(self, slot: Slot) -> None:
        """Its attempt has ended: keep the slot, or have it removed if something was left in it."""
        if len(self._free) < _MOST_FREE and slot.is_free():
            self._free.append(slot)
        else:
            self._discard(slot.path)

    def keep_only(self, slots: Iterable[Slot]) -> None:
        """Remove what a former worker left, but for these."""
        names = {os.path.basename(slot.path) for slot in slots}
        for name in os.listdir(self._place):
            if name not in names:
                self._discard(f"{self._place}/{name}")


def _is_as_new(path: str) -> bool:
    try:
        found = os.lstat(path)
        return found.st_mode == _MODE and found.st_uid == os.getuid() and not os.listdir(path)
    except OSError:
        return False
