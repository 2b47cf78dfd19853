"""Working directories and TMPDIRs that are reused if an attempt left them unchanged.

Creating and removing directories is the largest part of a worker's cost for a short attempt, and most attempts leave
theirs unchanged. The worker detects changes by a directory's change time (ctime): any change of an entry, the mode or
an attribute updates it, and no task can set it.
"""

import contextlib
import itertools
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from iris.worker.isolation.layers import layer_paths, remove_unused_layers
from iris.worker.isolation.plan import Mount

_MOST_FREE: Final = 1000
_GRANULE_NS: Final = 50_000_000
"""File systems distinguish times at least this far apart."""

MOST_LAYERED: Final = 48
"""Must be lower than the number of mounts that the guardian keeps."""
_KERNELS_ATTRIBUTES: Final = ("trusted.overlay.", "user.overlay.", "security.")

_Mark = tuple[int, int, int]


class Watched:
    """Directories used by one attempt at a time, with detection of changes.

    Args:
        mode: The mode of unchanged directories.
        owner: The owner of unchanged directories.
    """

    __slots__ = ("_is_told_apart", "_marks", "_mode", "_owner", "_paths")

    def __init__(self, paths: Sequence[str], mode: int, owner: int) -> None:
        self._owner = owner
        self._paths = paths
        self._mode = stat.S_IFDIR | mode
        self._marks: list[_Mark] | None = None
        self._is_told_apart = False

    def begins(self) -> bool:
        """Assign the directories to an attempt; return False if they have been changed."""
        if self._marks is None or self._look() != self._marks:
            return False
        # What is done at the very moment of the last change would not show.
        self._is_told_apart = time.time_ns() - max(changed for _, _, changed in self._marks) > _GRANULE_NS
        return True

    def is_free(self) -> bool:
        """Return whether the directories are reusable: the ended attempt left nothing in them."""
        marks = self._look()
        if marks is None:
            return False
        if marks == self._marks and self._is_told_apart:
            return True
        self._marks = marks
        self._is_told_apart = False
        return all(_is_as_new(path, self._mode, self._owner) for path in self._paths)

    def _look(self) -> list[_Mark] | None:
        try:
            found = [os.lstat(path) for path in self._paths]
        except OSError:
            return None
        return [(status.st_ino, status.st_mode, status.st_ctime_ns) for status in found]


class Layers:
    """The layers that receive an attempt's writes to its bundle and environment.

    Args:
        directory: The directory that holds only these layers.
        owner: The owner of the layers.
    """

    __slots__ = ("_names", "_watched", "directory", "mounts")

    def __init__(self, directory: str, mounts: tuple[Mount, ...], owner: int) -> None:
        self.directory = directory
        self.mounts = mounts
        self._watched = Watched([mount.layer for mount in mounts], 0o755, owner)
        self._names = {name for mount in mounts for name in map(os.path.basename, layer_paths(mount.layer))}

    def begin(self) -> bool:
        """Assign the layers to another attempt; return False if they have been changed."""
        return self._watched.begins()

    def are_free(self) -> bool:
        """Return whether the layers are reusable: the ended attempt wrote nothing."""
        try:
            # There are others where these could not be mounted.
            return self._names == set(os.listdir(self.directory)) and self._watched.is_free()
        except OSError:
            return False


class Slot:
    """The directories used by one attempt at a time.

    Args:
        path: The parent directory. The names in it are short because the path of a socket must not exceed 107 bytes.
        has_own: Whether the directory `own` may exist.
        owner: Owner of the two directories; 0 for this process's uid.
    """

    __slots__ = ("_watched", "has_own", "layers", "own", "owner", "path", "temporary", "working")

    def __init__(self, path: str, has_own: bool = False, owner: int = 0) -> None:
        self.path = path
        self.owner = owner
        self.working = f"{path}/work"
        self.temporary = f"{path}/tmp"
        self.own = f"{path}/own"
        """The directory of its layers, if any."""
        self.layers: Layers | None = None
        self.has_own = has_own
        self._watched = Watched((self.working, self.temporary), 0o700, owner or os.getuid())

    def make(self) -> None:
        """Create the directories. Raises OSError; FileExistsError if the slot exists."""
        # Its owner gets through it, and cannot put others in the place of the two.
        os.mkdir(self.path, 0o755 if self.owner else 0o700)
        for path in (self.working, self.temporary):
            os.mkdir(path, 0o700)
            if self.owner:
                os.chown(path, self.owner, self.owner)

    def begins(self) -> bool:
        """Assign the slot to an attempt; return False if it has been changed."""
        return self._watched.begins()

    def is_free(self) -> bool:
        """Return whether the slot is reusable: the ended attempt left nothing in it."""
        return self._watched.is_free()


class Slots:
    """The slots of one worker.

    Args:
        place: The parent directory of the slots.
        discard: Schedules the removal of a path.
        most_layered: Maximum number of free slots that keep their layers.
        owner: As in `Slot`.
    """

    def __init__(
        self, place: str, discard: Callable[[str], None], most_layered: int = MOST_LAYERED, owner: int = 0
    ) -> None:
        self._owner = owner
        self._place = place
        self._most_layered = most_layered
        self._discard = discard
        self._numbers = itertools.count()
        self._free: list[Slot] = []
        self._layered: dict[Slot, tuple[str, str]] = {}  # free ones with layers of a bundle and an environment

    def take(self, wanted: tuple[str, str] | None = None) -> Slot:
        """Return a slot whose directories are empty and of mode 0700. Raises OSError.

        Args:
            wanted: The preferred bundle and environment of its layers; None for a slot without layers.
        """
        while (slot := self._next(wanted)) is not None:
            if slot.begins():
                return slot
            self._discard(slot.path)
        while True:
            slot = Slot(f"{self._place}/{next(self._numbers)}", owner=self._owner)
            try:
                slot.make()
            except FileExistsError:
                continue  # a former worker's
            return slot

    def put_on(self, slot: Slot, mounts: tuple[Mount, ...]) -> None:
        """Set the mounts of the slot's attempt; their layers must be in `slot.own`. Raises OSError."""
        layers = slot.layers
        if layers is not None and (layers.mounts != mounts or not layers.begin()):
            self._take_off(slot)
        if slot.layers is None:
            with contextlib.suppress(FileExistsError):  # the attempt may begin in a directory that is only its own
                os.mkdir(slot.own, 0o700)
            slot.layers = Layers(slot.own, mounts, self._owner or os.getuid())
            slot.has_own = True

    def give(self, slot: Slot, key: tuple[str, str] = ("", "")) -> None:
        """Keep the slot of an ended attempt for reuse, or remove it if the attempt left anything in it.

        Args:
            slot: The slot.
            key: The bundle and environment below its layers.
        """
        if slot.has_own and (slot.layers is None or not slot.layers.are_free()):
            self._take_off(slot)
        if len(self._free) + len(self._layered) >= _MOST_FREE or not slot.is_free():
            self._discard(slot.path)
        elif slot.layers is None:
            self._free.append(slot)
        else:
            self._layered[slot] = key
            if len(self._layered) > self._most_layered:
                oldest = next(iter(self._layered))
                del self._layered[oldest]
                self._take_off(oldest)
                self._free.append(oldest)

    def keep_only(self, slots: Iterable[Slot]) -> None:
        """Remove all slots of an earlier worker except these."""
        names = {os.path.basename(slot.path) for slot in slots}
        for name in os.listdir(self._place):
            if name not in names:
                self._discard(f"{self._place}/{name}")

    def _next(self, wanted: tuple[str, str] | None) -> Slot | None:
        if wanted is not None:
            found = next((slot for slot in reversed(self._layered) if self._layered[slot] == wanted), None)
            if found is not None:
                del self._layered[found]
                return found
        return self._free.pop() if self._free else None

    def _take_off(self, slot: Slot) -> None:
        slot.layers = None
        slot.has_own = False
        if not remove_unused_layers(slot.own):
            self._discard(slot.own)


def _is_as_new(path: str, mode: int, owner: int) -> bool:
    try:
        found = os.lstat(path)
        return found.st_mode == mode and found.st_uid == owner and not os.listdir(path) and not _has_marks(path)
    except OSError:
        return False


def _has_marks(path: str) -> bool:
    """Return whether a task has set extended attributes on a directory."""
    try:
        return any(not name.startswith(_KERNELS_ATTRIBUTES) for name in os.listxattr(path))
    except OSError:
        return False  # this file system has none
