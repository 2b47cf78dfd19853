"""A file in storage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a directory.

    Attributes:
        name: Its path, seen from that directory.
        size: Bytes.
        modified: When it was written, in seconds since the epoch; None when storage does not tell.
    """

    name: str
    size: int
    modified: float | None
