"""Checks whether an unpacked bundle matches the original: first by content, later by the files' change times."""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from iris.domain.states import FailureKind
from iris.rpc.manifest import BundleEntry
from iris.worker.host.removal import remove_tree
from iris.worker.isolation.seals import tree_state
from iris.worker.types import PreparationFailed

_LOOK_EVERY_S: Final = 1.0
"""Limits the cost of checks, which take one stat per file: there may be hundreds of starts a second."""


class SoundTrees:
    """Records verified directories and their state at that time.

    Args:
        look_every_s: Minimum interval between two checks.
    """

    def __init__(self, look_every_s: float = _LOOK_EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._look_every_s = look_every_s
        self._clock = clock
        self._states: dict[str, bytes] = {}
        self._looked_at: dict[str, float] = {}

    def was_just_seen(self, path: Path) -> bool:
        """Return whether the directory was checked a moment ago, without reading files."""
        looked_at = self._looked_at.get(str(path))
        return looked_at is not None and self._clock() - looked_at < self._look_every_s

    def is_unchanged(self, path: Path) -> bool:
        """Return whether no content, name or mode in the directory has changed since it was verified."""
        key = str(path)
        now = self._clock()
        try:
            unchanged = key in self._states and tree_state(path) == self._states[key]
        except OSError:
            unchanged = False
        if unchanged:
            self._looked_at[key] = now
        else:
            self.forget(path)
        return unchanged

    def found_right(self, path: Path, state: bytes) -> None:
        """Record that the directory was verified; `state` is its state before its content was read."""
        self._states[str(path)] = state
        self._looked_at[str(path)] = self._clock()

    def forget(self, path: Path) -> None:
        self._states.pop(str(path), None)
        self._looked_at.pop(str(path), None)


def wrong_entries(
    root: Path, entries: Iterable[BundleEntry], part_size: Callable[[str], int]
) -> tuple[list[BundleEntry], list[Path]]:
    """Return the entries that are missing or different below `root`, and the files there that do not belong to the
    bundle.

    Args:
        root: The unpacked bundle.
        entries: The bundle's manifest.
        part_size: Returns the size of a part of a file that has several; raises OSError if unknown.

    Raises:
        OSError: A directory cannot be read.
    """
    listed = list(entries)
    names = {entry.path for entry in listed}
    directories = {entry.path for entry in listed if entry.is_directory}
    for entry in listed:
        above = entry.path.rpartition("/")[0]
        while above and above not in directories:
            directories.add(above)
            above = above.rpartition("/")[0]
    wrong = [entry for entry in listed if not _is_right(root / entry.path, entry, part_size)]
    return wrong, _strays(root, names | directories, directories)


def remove_strays(strays: Sequence[Path]) -> None:
    """Remove files that do not belong to the bundle or replace a file of the bundle."""
    for path in strays:
        remove_tree(str(path))


def check_links(entries: list[BundleEntry], tree: Path) -> None:
    """Raise PreparationFailed if a link leads out of the tree, directly or through other links, because the worker
    follows links, too.
    """
    root = os.path.realpath(tree)
    for entry in entries:
        if entry.symlink_target and not f"{os.path.realpath(tree / entry.path)}/".startswith(f"{root}/"):
            raise PreparationFailed(FailureKind.START, f"the bundle's link {entry.path!r} leads out of the bundle")


def mode_of(entry: BundleEntry) -> int:
    """Return the mode of a bundle's file, which is writable because tasks may write to their own views."""
    return 0o755 if entry.executable else 0o644


def _strays(root: Path, known: set[str], directories: set[str]) -> list[Path]:
    found = []
    waiting = [""]
    while waiting:
        above = waiting.pop()
        with os.scandir(root / above) as items:
            for item in items:
                name = f"{above}/{item.name}" if above else item.name
                is_directory = item.is_dir(follow_symlinks=False)
                if name not in known or is_directory != (name in directories):
                    found.append(root / name)
                elif is_directory:
                    waiting.append(name)
    return found


def _is_right(path: Path, entry: BundleEntry, part_size: Callable[[str], int]) -> bool:
    try:
        status = os.lstat(path)
        if entry.is_directory:
            return stat.S_ISDIR(status.st_mode)
        if entry.symlink_target:
            return stat.S_ISLNK(status.st_mode) and os.readlink(path) == entry.symlink_target
        if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != mode_of(entry):
            return False
        if status.st_size != entry.size_bytes:
            return False
        return _has_parts(path, entry.part_digests, part_size)
    except OSError:  # what cannot be read is written anew
        return False


def _has_parts(path: Path, parts: Sequence[str], part_size: Callable[[str], int]) -> bool:
    with open(path, "rb") as file:
        if len(parts) == 1:
            return hashlib.file_digest(file, "sha256").hexdigest() == parts[0]
        return all(hashlib.sha256(file.read(part_size(part))).hexdigest() == part for part in parts) and not file.read(
            1
        )
