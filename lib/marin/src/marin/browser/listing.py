"""Listing of a directory: names first, sizes and times only of those that are shown. A directory may have very many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory.

    Attributes:
        name: Its name below the root; "" for the root.
        is_dir: Whether it is a directory.
        size: Bytes; 0 for a directory.
        modified: When it was written, in seconds since the epoch; None when storage does not tell.
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
    """The names in a directory, directories first, hidden ones last among their kind.

    Args:
        found: The last part of each name, and whether it is a directory.
        look: Returns the entry of a name; None when it is gone meanwhile.
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
        """Return the names that have a text in them, in any case.

        Args:
            text: The text; "" for all.
        """
        if not text:
            return self
        wanted = text.lower()
        return Listing(((base, rank < 2) for rank, base in self._ranked if wanted in base.lower()), self._look)

    def part(self, start: int, end: int) -> list[Entry]:
        """Return the entries from a place up to another; those that are gone meanwhile are left out."""
        found = [self._look(base, rank < 2) for rank, base in self._ranked[start:end]]
        return [entry for entry in found if entry is not None]
