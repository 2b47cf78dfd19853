"""Split a job's output into lines, independent of the chunks in which it arrives."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from marin.execution.log.notes import Note, note_in
from marin.execution.log.rows import Rows

# Whose rest decides what it means.
_UNFINISHED: Final = re.compile(r"(?:\r|\x1b(?:\[[0-9;?]*)?)\Z")


class TextLines:
    """Split a text into notes to the run and lines, in their final form on a terminal.

    A note begins a new line; the empty line before it does not belong to the program.
    """

    def __init__(self) -> None:
        self._rows = Rows()
        self._holds_empty = False

    def feed(self, text: str) -> list[str | Note]:
        """Return the lines that new text completes. An empty last line is kept back until the next text."""
        return self.sift(self._rows.feed(text))

    def end(self) -> list[str | Note]:
        """Return the remaining lines, including an unfinished one."""
        found = self.sift(self._rows.end())
        held, self._holds_empty = self._holds_empty, False
        return [*found, ""] if held else found

    def sift(self, lines: Iterable[str]) -> list[str | Note]:
        """Return the lines and notes in order."""
        found: list[str | Note] = []
        for line in lines:
            note = note_in(line)
            if note is None and self._holds_empty:
                found.append("")
            self._holds_empty = not line
            if line:
                found.append(line if note is None else note)
        return found


class _Stream(TextLines):
    """Like `TextLines`, for bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held = ""

    def feed_bytes(self, data: bytes, *, final: bool = False) -> list[str | Note]:
        text = self._held + self._decoder.decode(data, final)
        self._held = ""
        unfinished = None if final else _UNFINISHED.search(text)
        if unfinished is not None:
            self._held, text = text[unfinished.start() :], text[: unfinished.start()]
        return self.feed(text)


class OutputLines:
    """Split the output of one process into lines, in order for each stream, and remove notes to the run.

    Args:
        take: Called with each note and its stream.
    """

    def __init__(self, take: Callable[[int, Note], object] = lambda *_: None) -> None:
        self._take = take
        self._streams: dict[int, _Stream] = {}

    def feed(self, pieces: Iterable[tuple[int, bytes]]) -> list[str]:
        """Return the lines that new output completes.

        Args:
            pieces: Pairs of a stream and bytes, in order.
        """
        lines: list[str] = []
        # Together what came together: each piece of a long line is another copy of its beginning.
        for number, group in groupby(pieces, key=itemgetter(0)):
            stream = self._streams.get(number)
            if stream is None:
                stream = self._streams[number] = _Stream()
            lines += self._lines(number, stream.feed_bytes(b"".join(piece for _, piece in group)))
        return lines

    def end(self) -> list[str]:
        """Return the remaining lines, including unfinished ones."""
        lines: list[str] = []
        for number, stream in sorted(self._streams.items()):
            lines += self._lines(number, stream.feed_bytes(b"", final=True) + stream.end())
        self._streams.clear()
        return lines

    def _lines(self, number: int, found: Sequence[str | Note]) -> list[str]:
        for each in found:
            if not isinstance(each, str):
                self._take(number, each)
        return [each for each in found if isinstance(each, str)]


def without_notes(text: str) -> str:
    """Return a text without its notes."""
    lines = TextLines()
    found = [*lines.sift(text.split("\n")), *lines.end()]
    return "\n".join(each for each in found if isinstance(each, str))
