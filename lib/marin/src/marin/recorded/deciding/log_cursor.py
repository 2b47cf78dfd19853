"""The read position in a log that grows, or is restarted by another attempt."""

from __future__ import annotations

import codecs


class LogCursor:
    """The part of a log that was read, and the bytes of an incomplete character.

    Args:
        lines: The number of last lines to start with; None for all.
    """

    def __init__(self, lines: int | None) -> None:
        self._lines = lines
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def begin(self, size: int) -> int:
        """Return where to continue in a log of the given size: at its start if it has become shorter."""
        if size < self._position:
            self._position = 0
            self._decoder.reset()
        return self._position

    def take(self, content: bytes) -> str:
        """Record the bytes read from that position, and return their text."""
        self._position += len(content)
        return self._decoder.decode(content)

    def first_lines(self, text: str) -> str:
        """Return the part of a text to show: for the first text, its last lines."""
        if self._lines is None or not text:
            return text
        kept = text.splitlines(keepends=True)
        shown = "".join(kept[len(kept) - self._lines :] if self._lines else [])
        self._lines = None
        return shown
