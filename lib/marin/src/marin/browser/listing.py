"""Listings of directories: all names, but sizes and times only for shown entries, because a directory may be huge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory.

    Attributes:
        name: Its name below the root; "" for the root.
        is_dir: Whether it is a directory.
        size: Size in bytes; 0 for a directory.
        modified: Modification time in seconds since the epoch; None if storage does not report it.
    """

    name: str
    is_dir: bool
    size: int = 0
    modified: float | None = None

    @property
    def base(self) -> str:
        """The last part of its name."""
        return self.name.rpartition("/")[2]


class Listing:
    """The names in a directory, directories first, with hidden names last in each group.

    Args:
        found: The last part of each name, and whether it is a directory.
        look: Returns the entry of a name; None if it is gone.
    """

    def __init__(self, found: Iterable[tuple[str, bool]], look: Callable[[str, bool], Entry | None]) -> None:
        # Plain tuples, which are sorted without a call for each: this may be hundreds of thousands.
        self._ranked = sorted((2 * (not is_dir) + base.startswith("."), base) for base, is_dir in found)
        self._look = look

    def __len__(self) -> int:
        return len(self._ranked)

    def __contains__(self, base: object) -> bool:
        return any(base == known for _, known in self._ranked)

    def matching(self, text: str) -> Listing:
        """Return the names that contain `text`, ignoring case.

        Args:
            text: The text; "" for all.
        """
        if not text:
            return self
        wanted = text.lower()
        return Listing(((base, rank < 2) for rank, base in self._ranked if wanted in base.lower()), self._look)

    def part(self, start: int, end: int) -> list[Entry]:
        """Return the entries in a range, without deleted ones."""
        found = [self._look(base, rank < 2) for rank, base in self._ranked[start:end]]
        return [entry for entry in found if entry is not None]
