"""Reserves disk space for the database, and refuses other writes before the disk is full.

Logs and blobs stop when less than 1.5 times `margin` is free beside the reserve file. New jobs are refused below
`margin`. The database uses that margin, too; then the controller releases the reserve file (of the same size) for the
database. A controller that starts on a full disk first releases the reserve, so it can always open its database.
"""

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rigging.errors import BudgetExceeded
from rigging.text.quantities import format_size

logger = logging.getLogger(__name__)

RESERVE_NAME: Final = "reserve"
DEFAULT_RESERVE_BYTES: Final = 64 * 1024 * 1024
_SHARE: Final = 10
"""Maximum share of a small file system to reserve: a tenth."""
_SPARED_BYTES: Final = 16 * 1024
_LOOK_EVERY_S: Final = 0.25
_ENOUGH_TO_START: Final = 1024 * 1024
_LEFTOVERS: Final = ("blobs/upload.*", "iris.db.restoring", "iris.db.snapshot", "*.log.old")


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Bytes of a file system: free for this user, and in total."""

    free: int
    total: int


def room_of(path: Path) -> FreeSpace:
    """Return the space on the file system of `path`."""
    found = os.statvfs(path)
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def reserve_size(wanted: int, total: int) -> int:
    """Return the bytes to reserve on a file system of `total` bytes."""
    return min(wanted, total // _SHARE)


def is_low(free: int, margin: int, held: bool, was_low: bool) -> bool:
    """Return whether new jobs, logs and blobs must wait: below the margin, and then until a quarter above it.

    Args:
        free: Free bytes.
        margin: Free bytes below which work must wait.
        held: The size of the held reserve file in bytes.
        was_low: The result of the last check.
    """
    return not held or free < (margin + margin // 4 if was_low else margin)


class DiskSpace:
    """The space on one file system, and its reserve file.

    Args:
        root: The state directory. wanted: Bytes to reserve; 0 reserves nothing and never refuses.
        look: Returns the space. clock: Returns seconds, for the interval between checks.
    """

    def __init__(
        self,
        root: Path,
        wanted: int = DEFAULT_RESERVE_BYTES,
        look: Callable[[Path], FreeSpace] = room_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._file = root / RESERVE_NAME
        self._wanted = wanted
        self._look = look
        self._clock = clock
        self._looked_at = -_LOOK_EVERY_S
        self._free = 0
        self._margin = 0
        self._held = False
        self._is_low = False

    def give_way(self, shed: Callable[[int], object]) -> None:
        """Make room for the database, if possible. Call this before opening it.

        Args:
            shed: Frees about this many bytes if there is no reserve left.
        """
        if not self._wanted or not self._root.is_dir():
            return
        if self._look(self._root).free < _ENOUGH_TO_START:
            self.release()
        for name in _LEFTOVERS if self._look(self._root).free < _ENOUGH_TO_START else ():
            for path in self._root.glob(name):
                path.unlink(missing_ok=True)
        missing = _ENOUGH_TO_START - self._look(self._root).free
        if missing > _ENOUGH_TO_START // 2:
            shed(missing)

    def release(self) -> bool:
        """Release the reserve for the database. Return whether there was a reserve."""
        held, self._held = self._file.exists(), False
        if held:
            with contextlib.suppress(OSError):
                os.truncate(self._file, 0)
            with contextlib.suppress(OSError):
                self._file.unlink()
            logger.error("%s is full: releasing the database's reserve", self._root)
            self.tend()  # says at once that the disk is low
        return held

    def spare(self) -> bool:
        """Release a few blocks of the reserve, for notes about dropped bytes; keep at least half."""
        size = self._size() - _SPARED_BYTES
        if not self._wanted or size < self._margin // 2:
            return False
        self._held = False  # to be made whole when there is room
        try:
            os.truncate(self._file, size)
        except OSError:
            return False
        return True

    def tend(self) -> None:
        """Check the disk, and recreate the reserve when there is room."""
        if not self._wanted:
            return
        room = self._look(self._root)
        self._margin = reserve_size(self._wanted, room.total)
        if not self._held:
            self._held = self._size() >= self._margin or (
                room.free >= 2 * self._margin + self._margin // 4 and self._allocate(self._margin)
            )
            room = self._look(self._root)
        self._free = room.free
        self._looked_at = self._clock()
        was_low, self._is_low = self._is_low, is_low(self._free, self._margin, self._held, self._is_low)
        if self._is_low and not was_low:
            logger.error("%s", self._reason())
        elif was_low and not self._is_low:
            logger.warning("%s has room again: %s free", self._root, format_size(self._free))

    @property
    def low(self) -> str:
        """Return why new jobs are refused now; empty if they are accepted."""
        if self._wanted:
            self.tend()
        return self._reason() if self._is_low else ""

    def check(self, what: str) -> None:
        """Raise BudgetExceeded if there is no room for `what`, e.g. "new jobs"."""
        if self.low:
            raise BudgetExceeded(f"{what} cannot be taken now: {self._reason()}")

    def take(self, count: int) -> bool:
        """Return whether `count` more bytes of a log or blob may be written, and count them as written."""
        if not self._wanted:
            return True
        if self._clock() - self._looked_at >= _LOOK_EVERY_S or not self._has(count):
            self.tend()
        if not self._has(count):
            return False
        self._free -= count
        return True

    def _has(self, count: int) -> bool:
        # They stop before new jobs are refused, and leave room for a reserve that was given up: else what they wrote
        # could keep jobs out for ever.
        kept = self._margin + self._margin // 2
        return self._free - count >= (kept if self._held else kept + self._margin)

    def _reason(self) -> str:
        free = f"{format_size(self._free)} free in {self._root}"
        kept = f"{format_size(self._margin)} are kept for the database"
        return f"the controller's disk is nearly full ({free}, {kept}); free some space; running tasks continue"

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except OSError:
            return 0

    def _allocate(self, size: int) -> bool:
        try:
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            return False
        finally:
            os.close(descriptor)
        return True
