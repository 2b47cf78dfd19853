"""Opens, joins and removes the pieces of one log in any form."""

import contextlib
import logging
import os
import secrets
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iris.controller.logs.names import (
    FILE_MARK,
    MOVED,
    PACKED,
    LogFileName,
    file_name,
    packed_name,
    parse_name,
    read_moved_note,
)
from iris.controller.logs.packed import Block, DamagedPieceError, PackedPiece
from iris.rpc.logformat import Read, Span
from iris.rpc.logreading import read_spans

logger = logging.getLogger(__name__)

AHEAD: Final = 4
"""Number of pieces of one log to prefetch; three times as fast at a latency of 50 ms."""

Fetch = Callable[[str], bytes | None]
"""Returns a remote object by name; None if it does not exist. May block."""


Expect = Callable[[Sequence[str]], None]
"""Called with the names of remote objects that will be fetched soon."""


class PieceMovedError(Exception):
    """The piece is in the remote state, and this reader has no access to it.

    Args:
        name: The object's name.
        lines: The piece's number of lines; None if unknown.
    """

    def __init__(self, name: str, lines: int | None) -> None:
        super().__init__(name)
        self.lines = lines


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The location of one log's pieces.

    Args:
        fetch: Reads moved pieces; None raises PieceMovedError instead.
        trash: The directory of notes about remote objects to remove.
        announce: Called with moved pieces that will be read soon; None for no calls.
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

    def names(self) -> list[LogFileName]:
        """Return the names of the log's files."""
        found = (parse_name(path.name) for path in self.directory.glob(f"{FILE_MARK}{self.index}.{self.attempt}.*"))
        return [name for name in found if name is not None]

    def expect(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Announce the moved pieces among these (offset and size), which will be opened soon in this order."""
        if self.announce is None:
            return
        names = []
        for start, size in pieces:
            with contextlib.suppress(OSError):  # in another form, or removed
                names.append(read_moved_note(self.packed(start, size, MOVED))[0])
        self.announce(names)

    def remove(self, start: int, size: int) -> None:
        """Remove a piece in all its forms."""
        self.raw(start).unlink(missing_ok=True)
        self.remove_packed(start, size)

    def remove_packed(self, start: int, size: int) -> None:
        """Remove the packed and moved forms of a piece."""
        self.packed(start, size).unlink(missing_ok=True)
        moved = self.packed(start, size, MOVED)
        with contextlib.suppress(FileNotFoundError):
            if self.trash is None:
                moved.unlink()
            else:
                self.trash.mkdir(mode=0o700, exist_ok=True)
                os.replace(moved, self.trash / secrets.token_hex(8))

    def open(self, start: int, size: int) -> "RawPiece | PackedReader | None":
        """Return the piece in its first existing form; None if it was removed. Raise PieceMovedError or OSError."""
        # In the order in which a piece changes its form, so that one that changes meanwhile is found in the next.
        with contextlib.suppress(FileNotFoundError):
            return RawPiece(os.open(self.raw(start), os.O_RDONLY | os.O_CLOEXEC))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self.packed(start, size), os.O_RDONLY | os.O_CLOEXEC)
            return PackedReader(lambda offset, count: os.pread(descriptor, count, offset), descriptor)
        try:
            name, lines = read_moved_note(self.packed(start, size, MOVED))
        except FileNotFoundError:
            return None
        if self.fetch is None:
            raise PieceMovedError(name, lines)
        data = self.fetch(name)
        if data is None:
            logger.error("a piece of a log is gone from the remote state: %s", name)
            return None
        return PackedReader(lambda offset, count: data[offset : offset + count])


class RawPiece:
    """A piece in its original form."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, offset: int, count: int) -> bytes:
        return os.pread(self._descriptor, count, offset)

    def close(self) -> None:
        os.close(self._descriptor)


class PackedReader:
    """A packed piece. Caches the last block.

    Args:
        descriptor: A descriptor to close at the end, if any.
    """

    def __init__(self, read: Read, descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        self._kept: tuple[int, bytes | None] = (-1, None)
        try:
            self._piece = PackedPiece.opened(read)
        except DamagedPieceError:
            self._piece = PackedPiece(read, [])

    @property
    def blocks(self) -> Sequence[Block]:
        """Return the blocks; None if their table is damaged."""
        return self._piece.blocks

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes from an offset; zeros for damaged parts, and fewer at the end."""
        parts = []
        while count > 0 and offset < self._piece.size:
            number = self._piece.block_at(offset)
            block = self.blocks[number]
            data = self.block(number) or bytes(block.size)
            part = data[offset - block.start : offset - block.start + count]
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return b"".join(parts)

    def block(self, number: int) -> bytes | None:
        """Return the bytes of a block; None if it is damaged."""
        if self._kept[0] != number:
            self._kept = number, self._piece.unpacked(number)
        return self._kept[1]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class JoinedPieces:
    """Consecutive pieces as one. Pieces dropped meanwhile read as zeros: a gap.

    Args:
        run: Offset in the log and size of each piece. Reads are relative to the first piece's offset.
    """

    def __init__(self, place: LogPlace, run: Sequence[tuple[int, int]]) -> None:
        self._place = place
        self._begin = run[0][0]
        self._run = [(start - self._begin, size) for start, size in run]
        self._open: tuple[int, RawPiece | PackedReader | None] | None = None
        self._dropped: set[tuple[int, int]] = set()

    def was_dropped(self, begin: int, end: int) -> bool:
        """Return whether the range overlaps pieces that were dropped after the listing."""
        return any(first <= end and begin <= last for first, last in self._dropped)

    def read(self, offset: int, count: int) -> bytes:
        """Return bytes from an offset, and fewer only at the end."""
        parts = []
        for number in range(max(bisect_right(self._run, (offset, sys.maxsize)) - 1, 0), len(self._run)):
            start, size = self._run[number]
            wanted = min(count, start + size - offset)
            if count <= 0:
                break
            piece = self._piece(number)
            if piece is None:
                self._dropped.add((offset, offset + wanted))
            data = b"" if piece is None else piece.read(offset - start, wanted)
            parts.append(data + bytes(wanted - len(data)))
            offset, count = offset + wanted, count - wanted
        return b"".join(parts)

    def spans(self, begin: int, end: int, since_ms: int, until_ms: int) -> Iterator[Span]:
        """Yield the records between two record boundaries, and notes for gaps.

        Packed blocks are yielded whole. A block with only records of other times, according to the table, is yielded
        without records and not read. Other spans may include some records of other times.

        Args:
            begin: The offset of the first byte.
            end: The offset after the last byte.
            since_ms: Unix ms.
            until_ms: Unix ms; 0 for no end.
        """
        place, at_ms = begin, 0
        for number, (start, size) in enumerate(self._run):
            piece = self._piece(number) if begin < start + size and start < end else None
            for index, block in enumerate(piece.blocks if isinstance(piece, PackedReader) else ()):
                first, behind = start + block.start, start + block.end
                if not block.whole or first < place or behind > end:
                    continue
                # A hole has the time of the record before it.
                yield from read_spans(self.read, place, first, closed=True, before_ms=at_ms or block.first_ms)
                place, at_ms = behind, block.last_ms
                data: bytes | None = b""
                if since_ms <= block.last_ms and (not until_ms or block.first_ms <= until_ms):
                    again = self._piece(number)
                    data = again.block(index) if isinstance(again, PackedReader) else None
                if data is None:
                    yield from read_spans(self.read, first, behind, closed=True, before_ms=block.first_ms)
                else:
                    yield Span(data, behind, block.first_ms, block.last_ms, not block.special)
        yield from read_spans(self.read, place, end, closed=True, before_ms=at_ms)

    def close(self) -> None:
        if self._open is not None and self._open[1] is not None:
            self._open[1].close()
        self._open = None

    def _piece(self, number: int) -> RawPiece | PackedReader | None:
        """Return the piece with this number; None if it was dropped. The piece stays open until the next request."""
        if self._open is None or self._open[0] != number:
            self.close()
            (start, size), *following = ((self._begin + at, size) for at, size in self._run[number:][: AHEAD + 1])
            self._place.expect(following)
            self._open = number, self._place.open(start, size)
        return self._open[1]
