"""The lines of a job's output, from the bytes that its backend has: the same ones whoever reads, in whatever pieces."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

from marin.execution.report.job_notes import Note, note_in
from marin.execution.report.rows import Rows

# Whose rest decides what it means.
_UNFINISHED: Final = re.compile(r"(?:\r|\x1b(?:\[[0-9;?]*)?)\Z")


class OutputLines:
    """Splits the output of one process into lines, those of each stream in order; notes to the run are taken out.

    Args:
        take: Called with each note, and the stream that it came by.
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
            data = b"".join(piece for _, piece in group)
            stream = self._streams.get(number)
            if stream is None:
                stream = self._streams[number] = _Stream()
            lines += stream.notes.without(stream.whole(data), partial(self._take, number))
        return lines

    def end(self) -> list[str]:
        """Return what is left, unfinished lines included."""
        lines: list[str] = []
        for number, stream in sorted(self._streams.items()):
            lines += stream.notes.without(stream.left(), partial(self._take, number))
            lines += stream.notes.end()
        self._streams.clear()
        return lines


class WithoutNotes:
    """Takes notes out of lines, and the empty line before one: a note begins a line of its own, whatever was open."""

    def __init__(self) -> None:
        self._holds_empty = False

    def without(self, lines: Sequence[str], take: Callable[[Note], object]) -> list[str]:
        """Return the lines that are no notes; an empty one at the end is held back until the next."""
        kept: list[str] = []
        for line in lines:
            note = note_in(line)
            if note is not None:
                self._holds_empty = False
                take(note)
                continue
            kept += self.end()
            if line:
                kept.append(line)
            else:
                self._holds_empty = True
        return kept

    def end(self) -> list[str]:
        """Return the line that was held back, if there is one."""
        held, self._holds_empty = self._holds_empty, False
        return [""] if held else []


class _Stream:
    def __init__(self) -> None:
        self.notes = WithoutNotes()
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._rows = Rows()
        self._held = ""

    def whole(self, data: bytes, *, final: bool = False) -> list[str]:
        text = self._held + self._decoder.decode(data, final)
        self._held = ""
        unfinished = None if final else _UNFINISHED.search(text)
        if unfinished is not None:
            self._held, text = text[unfinished.start() :], text[: unfinished.start()]
        return self._rows.feed(text)

    def left(self) -> list[str]:
        lines = self.whole(b"", final=True)
        return lines + [text for text in self._rows.texts if text.strip()]
