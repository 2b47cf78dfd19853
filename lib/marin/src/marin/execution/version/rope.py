"""Ropes: texts made of shared pieces, because a version quotes its dependencies' versions, which may be large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Shorter texts are kept in one piece; longer ones share their pieces with the texts that they quote.
FLAT_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Rope:
    """An immutable byte string as a sequence of pieces.

    Attributes:
        pieces: Byte strings and other ropes, in order.
        length: The total number of bytes.
    """

    pieces: tuple[bytes | Rope, ...]
    length: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes in order, in pieces of up to about `FLAT_BYTES`."""
        stack = [iter(self.pieces)]
        while stack:
            for piece in stack[-1]:
                if isinstance(piece, Rope):
                    stack.append(iter(piece.pieces))
                    break
                yield piece
            else:
                stack.pop()

    @property
    def is_flat(self) -> bool:
        """Whether the text is a single piece."""
        return len(self.pieces) == 1 and isinstance(self.pieces[0], bytes)

    def __bytes__(self) -> bytes:
        only = self.pieces[0] if len(self.pieces) == 1 else None
        return only if type(only) is bytes else b"".join(self.chunks())


def rope(pieces: list[bytes | Rope]) -> Rope:
    """Join pieces. Small results are flattened."""
    if len(pieces) == 1 and type(pieces[0]) is bytes:
        return Rope((pieces[0],), len(pieces[0]))
    length = 0
    for piece in pieces:
        length += len(piece) if type(piece) is bytes else piece.length  # type: ignore[union-attr]
    if length > FLAT_BYTES:
        return Rope(tuple(pieces), length)
    return Rope((b"".join([piece if type(piece) is bytes else bytes(piece) for piece in pieces]),), length)
