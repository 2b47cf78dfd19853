"""Checks a write-ahead log, because SQLite silently truncates a damaged one.

The format is that of https://www.sqlite.org/walformat.html. A commit is acknowledged after its frames are synced, so an
unreadable frame before a commit is damage. An unreadable frame after the last commit is a write that a crash
interrupted. The index (`-shm`) of a killed process contains the number of frames.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HEADER: Final = 32
FRAME_HEADER: Final = 24
MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
_INDEX: Final = struct.Struct("=IIIBBHII8s8s8s")
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a log to check at a start."""


@dataclass(frozen=True, slots=True)
class WalIndex:
    """The index of a log: committed frames, frames already in the database, and their salt."""

    committed: int
    copied: int
    salt: bytes


def wal_damage(database: Path) -> str:
    """Return the damage of a closed database's write-ahead log; empty if none is found."""
    wal = database.with_name(database.name + "-wal")
    index = read_index(database.with_name(database.name + "-shm"))
    size = wal.stat().st_size if wal.exists() else 0
    missing = index.committed - index.copied if index is not None else 0
    if size <= HEADER:
        return f"{wal} is gone or empty, and {missing} pages of commits were in it alone" if missing > 0 else ""
    if size > _MOST_BYTES:
        return ""
    content = wal.read_bytes()
    state = _header_checksum(content)
    if state is None:
        return f"the beginning of {wal} is damaged, so none of the commits in it can be read"
    order, checksum = state
    page_size = struct.unpack_from(">I", content, 8)[0]
    salt = content[16:24]
    frames = (size - HEADER) // (FRAME_HEADER + page_size)
    readable, committed = _readable_frames(content, order, checksum, page_size, frames)
    if index is not None and index.salt == salt and committed < index.committed and index.copied < index.committed:
        lost = index.committed - max(committed, index.copied)
        return f"{wal} is damaged: {lost} of its {index.committed} pages cannot be read"
    later = [
        number
        for number in range(readable + 1, frames)
        if _frame(content, number, page_size)[2:4] == struct.unpack(">II", salt)
        and _frame(content, number, page_size)[1]
    ]
    # One commit behind the gap may be that which a loss of power cut off; two cannot.
    if len(later) > 1:
        return f"{wal} is damaged: page {readable + 1} of {later[-1] + 1} cannot be read, nor can what follows it"
    return ""


def _frame(content: bytes, number: int, page_size: int) -> tuple[int, ...]:
    found: tuple[int, ...] = struct.unpack_from(">6I", content, HEADER + number * (FRAME_HEADER + page_size))
    return found


def _header_checksum(content: bytes) -> tuple[str, tuple[int, int]] | None:
    magic, _, page_size = struct.unpack_from(">III", content)
    order = MAGIC.get(magic)
    if order is None or page_size < 512 or page_size & (page_size - 1):
        return None
    checksum = wal_checksum(order, content[:24], (0, 0))
    return (order, checksum) if checksum == struct.unpack_from(">II", content, 24) else None


def _readable_frames(
    content: bytes, order: str, checksum: tuple[int, int], page_size: int, frames: int
) -> tuple[int, int]:
    """Return the number of intact leading frames, and how many of them are committed."""
    salt = struct.unpack_from(">II", content, 16)
    committed = 0
    for number in range(frames):
        start = HEADER + number * (FRAME_HEADER + page_size)
        _, commit, salt1, salt2, sum1, sum2 = struct.unpack_from(">6I", content, start)
        if (salt1, salt2) != salt:
            return number, committed
        checksum = wal_checksum(order, content[start : start + 8], checksum)
        checksum = wal_checksum(order, content[start + FRAME_HEADER : start + FRAME_HEADER + page_size], checksum)
        if checksum != (sum1, sum2):
            return number, committed
        if commit:
            committed = number + 1
    return frames, committed


def wal_checksum(order: str, data: bytes, start: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's checksum of `data`, continued from `start`.

    Args:
        order: The byte order of the words, for `struct`.
        data: Whole pairs of words.
        start: The checksum so far.
    """
    first, second = start
    for one, two in struct.iter_unpack(f"{order}II", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second


def read_index(path: Path) -> WalIndex | None:
    """Return the header of a log's index; None if it is missing or inconsistent."""
    try:
        with path.open("rb") as file:
            content = file.read(100)
    except FileNotFoundError:
        return None
    if len(content) < 100 or content[:48] != content[48:96]:
        return None
    fields = _INDEX.unpack_from(content)
    _, _, _, is_initialised, _, _, committed, _, _, salt, _ = fields
    return WalIndex(committed, struct.unpack_from("=I", content, 96)[0], salt) if is_initialised else None
