"""A file in storage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a directory.

    Attributes:
        name: Its path relative to that directory.
        size: Size in bytes.
        modified: Modification time in seconds since the epoch; None if storage does not report it.
        changed: On disks the time of its last change, also of its name; else `modified`.
    """

    name: str
    size: int
    modified: float | None
    changed: float | None
