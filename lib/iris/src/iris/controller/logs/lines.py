"""Finds the lines of one attempt's log by number, without reading what is before them.

Packed pieces keep the number of lines of each block, so a number costs a look at their tables. Notes have no numbers,
and a line counts where it ends.
"""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing
from operator import itemgetter

from iris.controller.logs.files import Counted, LogFiles
from iris.controller.logs.packed import BLOCK_BYTES, Block
from iris.controller.logs.pieces import LogPlace, PackedReader, PieceMovedError
from iris.rpc.logreading import read_spans


def start_of_line(log: LogFiles, number: int) -> tuple[int, int] | None:
    """Return the offset of a record at most a block before a line, and the number of the line that begins there.

    Args:
        log: The log.
        number: The line, from 1; a negative one counts from the end.

    Returns:
        Offset and number; those of the log's end for a line that is not there yet. None if a piece was never counted.
    """
    starts: list[tuple[int, int]] = []
    before = 0
    for start, size in log.files:
        counts = log.counted.get(start)
        if counts is None:
            is_last = start == log.files[-1][0]
            counts = _counts(log.place, start, log.complete_size() - start if is_last else size)
            if counts is None:
                return None
            if not is_last:
                log.counted[start] = counts
        for begin, lines, is_whole in counts:
            if is_whole:
                starts.append((begin, before))
            before += lines
    starts.append((log.complete_size(), before))
    wanted = number if number > 0 else max(before + number + 1, 1)
    offset, before = starts[max(bisect_left(starts, wanted, key=itemgetter(1)) - 1, 0)]
    return offset, before + 1


def counted_blocks(blocks: Sequence[Block], start: int) -> list[Counted] | None:
    """Return the blocks of a packed piece; None if nobody counted their lines.

    Args:
        blocks: The blocks.
        start: The start of the piece in the log.
    """
    if any(block.lines is None for block in blocks):
        return None
    found = (Counted(start + block.start, block.lines or 0, block.whole) for block in blocks)
    return _with_cut(start, list(found))


def _counts(place: LogPlace, start: int, size: int) -> list[Counted] | None:
    try:
        piece = place.open(start, size)
    except PieceMovedError as moved:
        return None if moved.lines is None else [Counted(start, moved.lines, True)]
    if piece is None:
        return []
    with closing(piece):
        if isinstance(piece, PackedReader):
            return counted_blocks(piece.blocks, start)
        found: list[Counted] = []
        begin = start
        for span in read_spans(piece.read, 0, size, closed=True, most=BLOCK_BYTES):
            found.append(Counted(begin, span.lines, not span.hole))
            begin = start + span.end
    return _with_cut(start, found)


def _with_cut(start: int, counts: list[Counted]) -> list[Counted]:
    """Add the line that began in the piece before: a worker that is behind sends records cut anywhere."""
    if start and counts and not counts[0].is_whole:
        counts[0] = counts[0]._replace(lines=1)
    return counts
