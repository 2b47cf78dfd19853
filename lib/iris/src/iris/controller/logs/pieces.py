"""The pieces of one log, whatever their form: opened, read as one, and removed."""

import contextlib
import io
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from iris.controller.logs.names import MOVED, PACKED, file_name, packed_name, parse_name
from iris.controller.logs.packed import DamagedPieceError, PackedPiece

logger = logging.getLogger(__name__)

Fetch = Callable[[str], bytes | None]
"""Gives an object of the remote state by its name there; None: there is no such object. It may take its time."""


Expect = Callable[[Sequence[str]], None]
"""Hears the names of objects of the remote state that will be asked for soon."""


class PieceMovedError(Exception):
    """The piece is in the remote state, and this reader does not fetch from there."""


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the pieces of one log are.

    Args:
        fetch: Reads what was moved; None: reading that raises PieceMovedError.
        trash: Directory of notes of objects that are to be removed from the remote state.
        announce: Hears which moved pieces will be read soon; None: nobody does.
    """

    directory: Path
    index: int
    attempt: int
    fetch: Fetch | None = None
    trash: Path | None = None
    announce: Expect | None = None

    def raw(self, start: int) -> Path:
        return self.directory / file_name(self.index, self.attempt, start)

    def packed(self, start: int, size: int, form: str = PACKED) -> Path:
        return self.directory / packed_name(self.index, self.attempt, start, size, form)

    def packed_sizes(self, start: int) -> list[int]:
        """The sizes of the packed or moved pieces that begin there: one, or none."""
        found = (parse_name(path.name) for path in self.directory.glob(f"~{self.index}.{self.attempt}.{start}-*"))
        return [name.size for name in found if name is not None]

    def expect(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Announce those of the pieces (offset and size) that were moved: they will be opened soon, in this order."""
        if self.announce is None:
            return
        names = []
        for start, size in pieces:
            with contextlib.suppress(OSError):  # in another form, or removed
                names.append(self.packed(start, size, MOVED).read_text())
        self.announce(names)

    def remove(self, start: int, size: int) -> None:
        """Remove a piece in all its forms."""
        self.raw(start).unlink(missing_ok=True)
        self.remove_packed(start, size)

    def remove_packed(self, start: int, size: int) -> None:
        """Remove its later forms."""
        self.packed(start, size).unlink(missing_ok=True)
        moved = self.packed(start, size, MOVED)
        with contextlib.suppress(FileNotFoundError):
            if self.trash is None:
                moved.unlink()
            else:
                self.trash.mkdir(mode=0o700, exist_ok=True)
                os.replace(moved, self.trash / secrets.token_hex(8))

    def open(self, start: int, size: int) -> "RawPiece | PackedReader | None":
        """The piece, in the first form that is there; None: it was removed. Raises PieceMovedError, OSError."""
        # In the order in which a piece changes its form, so that one that changes meanwhile is found in the next.
        with contextlib.suppress(FileNotFoundError):
            return RawPiece(os.open(self.raw(start), os.O_RDONLY | os.O_CLOEXEC))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self.packed(start, size), os.O_RDONLY | os.O_CLOEXEC)
            return PackedReader(lambda offset, count: os.pread(descriptor, count, offset), descriptor)
        try:
            name = self.packed(start, size, MOVED).read_text()
        except FileNotFoundError:
            return None
        if self.fetch is None:
            raise PieceMovedError(name)
        data = self.fetch(name)
        if data is None:
            logger.error("a piece of a log is gone from the remote state: %s", name)
            return None
        return PackedReader(lambda offset, count: data[offset : offset + count])


class RawPiece:
    """A piece as it came."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, offset)

    def close(self) -> None:
        os.close(self._descriptor)


class PackedReader:
    """A packed piece; the block that was read last is kept unpacked.

    Args:
        descriptor: Closed at the end, if there is one.
    """

    def __init__(self, read: Callable[[int, int], bytes], descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        self._block: tuple[int, bytes] = (-1, b"")
        try:
            self.piece = PackedPiece.opened(read)
        except DamagedPieceError:
            self.piece = PackedPiece(read, [])

    def read(self, offset: int, count: int) -> bytes:
        """So many bytes from an offset on; zeros for what is damaged, fewer at the end."""
        parts = []
        while count > 0 and offset < self.piece.size:
            number = self.piece.block_at(offset)
            block = self.piece.blocks[number]
            data = self.block(number)
            part = data[offset - block.start : offset - block.start + count]
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return b"".join(parts)

    def block(self, number: int) -> bytes:
        """The bytes of a block; zeros when it is damaged."""
        if self._block[0] != number:
            data = self.piece.unpacked(number)
            self._block = number, bytes(self.piece.blocks[number].size) if data is None else data
        return self._block[1]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class JoinedPieces(io.RawIOBase):
    """Pieces that follow each other, read as one; those that were dropped meanwhile read as zeros, which are a hole.

    Args:
        run: Offset in the log and size of each piece.
    """

    def __init__(self, place: LogPlace, run: Sequence[tuple[int, int]]) -> None:
        self._place = place
        self._run = run
        self._begin = run[0][0]
        self._size = sum(size for _, size in run)
        self._position = 0
        self._open: tuple[int, RawPiece | PackedReader | None] | None = None
        self._dropped: set[tuple[int, int]] = set()

    def was_dropped(self, begin: int, end: int) -> bool:
        """True if the range overlaps pieces that were dropped after they were listed."""
        return any(first <= end and begin <= last for first, last in self._dropped)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset if whence == 0 else self._size + offset if whence == 2 else self._position + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        wanted = self._size - self._position if size < 0 else min(size, self._size - self._position)
        parts = []
        for start, length in self._run:
            begin = self._position - (start - self._begin)
            if wanted <= 0:
                break
            if not 0 <= begin < length:
                continue
            count = min(wanted, length - begin)
            parts.append(self._part(start, length, begin, count))
            self._position += count
            wanted -= count
        return b"".join(parts)

    def opened(self, start: int, size: int) -> RawPiece | PackedReader | None:
        """The piece that begins there, which stays open until another is asked for."""
        if self._open is None or self._open[0] != start:
            self._close_piece()
            self._open = start, self._place.open(start, size)
        return self._open[1]

    def recent(self, begin: int, end: int, since_ms: int) -> list[tuple[int, int]]:
        """The parts between two offsets that may have records from a time on; both are ends of records.

        Packed blocks of which all records are earlier are left out unread: the table of their piece says so.

        Args:
            begin: Offset of the first byte.
            end: Offset behind the last one.
            since_ms: Unix ms.
        """
        found: list[tuple[int, int]] = []
        place = begin
        for start, size in self._run:
            offset = start - self._begin
            if since_ms <= 0 or offset + size <= begin or offset >= end:
                continue
            piece = self.opened(start, size)
            for block in piece.piece.blocks if isinstance(piece, PackedReader) else ():
                first, behind = max(offset + block.start, begin), offset + block.end
                if block.whole and block.last_ms < since_ms and begin < behind <= end:
                    found.append((place, first))
                    place = behind
        found.append((place, end))
        return [(first, behind) for first, behind in found if first < behind]

    def close(self) -> None:
        self._close_piece()
        super().close()

    def _close_piece(self) -> None:
        if self._open is not None and self._open[1] is not None:
            self._open[1].close()
        self._open = None

    def _part(self, start: int, length: int, begin: int, count: int) -> bytes:
        piece = self.opened(start, length)
        if piece is None:
            place = start - self._begin + begin
            self._dropped.add((place, place + count))
            return bytes(count)
        data = piece.read(begin, count)
        return data + bytes(count - len(data))
