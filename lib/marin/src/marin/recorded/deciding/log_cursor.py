"""Where to read on in a log that grows, or is begun anew by another attempt."""

from __future__ import annotations

import codecs


class LogCursor:
    """The part of a log that has been read, and the bytes of a character of which the rest is still to come.

    Args:
        lines: How many last lines to begin with; None for all.
    """

    def __init__(self, lines: int | None) -> None:
        self._lines = lines
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def begin(self, size: int) -> int:
        """Return where to read on in a log of so many bytes: at its beginning when it is shorter than it was."""
        if size < self._position:
            self._position = 0
            self._decoder.reset()
        return self._position

    def take(self, content: bytes) -> str:
        """Note what was read from there on; return its text."""
        self._position += len(content)
        return self._decoder.decode(content)

    def first_lines(self, text: str) -> str:
        """Return the part of a text that is to be shown: of the first one, the last lines."""
        if self._lines is None or not text:
            return text
        kept = text.splitlines(keepends=True)
        shown = "".join(kept[len(kept) - self._lines :] if self._lines else [])
        self._lines = None
        return shown
