"""Convert text written to a terminal to its final lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_PIECES: Final = re.compile(r"\r?\n|\r|\x1b\[(?P<up>\d*)A|[^\r\n\x1b]+|\x1b(?:\[[0-9;?]*[A-Za-z])?")

_MOVES: Final = re.compile(r"[\r\x1b]")
_LABEL: Final = re.compile(r"\s*(\D*?)\s*(?=\d|$)")


@dataclass(slots=True)
class Rows:
    """The unfinished lines of one step in their terminal form. Nested progress bars take several lines.

    Attributes:
        texts: The lines from top to bottom.
        bars: For each line, whether a carriage return has restarted it.
        at: Index of the current line.
    """

    texts: list[str] = field(default_factory=lambda: [""])
    bars: list[bool] = field(default_factory=lambda: [False])
    at: int = 0
    _overwrites: bool = False
    # Empty lines at the end. If a bar follows, they are rows: tqdm goes down past the bars of other steps.
    _blanks: int = 0

    def feed(self, text: str) -> list[str]:
        """Add text and return the lines that it completes."""
        if len(self.texts) == 1 and not self.bars[0] and not self._overwrites and not _MOVES.search(text):
            # Most output, in a tenth of the time.
            plain = (self.texts[0] + text).split("\n")
            left = self.texts[0] = plain.pop()
            return self._with_blanks(plain) if self._blanks or (plain and not (left or plain[-1])) else plain
        whole: list[str] = []
        for match in _PIECES.finditer(text):
            piece = match[0]
            if piece in ("\n", "\r\n"):
                whole += self._end_line()
                continue
            if piece == "\r":
                self.texts[:0], self.bars[:0] = [""] * self._blanks, [False] * self._blanks
                self.at += self._blanks
                self._blanks = 0
                self.bars[self.at] = self._overwrites = True
            elif match["up"] is not None:
                self.at = max(0, self.at - int(match["up"] or 1))
            else:
                whole += self._take_blanks()
                if self.at and not self._overwrites and not self.texts[self.at]:
                    whole += self.settle()  # plain text below bars: they are done
                self.texts[self.at] = piece if self._overwrites else self.texts[self.at] + piece
                self._overwrites = False
        return whole

    def _end_line(self) -> list[str]:
        self._overwrites = False
        if self.at == 0 and not self.bars[0] and (self.texts[0] or len(self.texts) == 1):
            # The row stays, above bars.
            text, self.texts[0] = self.texts[0], ""
            self._blanks += not text
            return [text] if text else []
        if self.bars[self.at]:
            # A bar that ends draws itself higher up, and leaves its last state below.
            label = _label(self.texts[self.at])
            old = [i for i in range(self.at + 1, len(self.texts)) if self.bars[i] and _label(self.texts[i]) == label]
            for index in reversed(old):
                del self.texts[index], self.bars[index]
        self.at += 1
        if self.at == len(self.texts):
            self.texts.append("")
            self.bars.append(False)
        return []

    def settle(self) -> list[str]:
        """Remove and return the lines above the current one, because their bars are done."""
        whole = [text for text in self.texts[: self.at] if text.strip()]
        del self.texts[: self.at], self.bars[: self.at]
        self.at = 0
        return whole

    def end(self) -> list[str]:
        """Remove and return all remaining lines."""
        self.at = len(self.texts)
        left = [*self._take_blanks(), *self.settle()]
        self.texts, self.bars = [""], [False]
        return left

    def _with_blanks(self, plain: list[str]) -> list[str]:
        """Return plain lines with the empty lines before them. Keep those at the end, unless an open line follows."""
        lines = [*self._take_blanks(), *plain]
        while lines and not lines[-1] and not self.texts[0]:
            lines.pop()
            self._blanks += 1
        return lines

    def _take_blanks(self) -> list[str]:
        count, self._blanks = self._blanks, 0
        return [""] * count

    def take_open(self) -> str:
        """Remove and return the unfinished line."""
        text, self.texts[self.at], self.bars[self.at] = self.texts[self.at], "", False
        return text

    @property
    def is_bar(self) -> bool:
        """Return whether one of the lines is a progress bar."""
        return any(self.bars)


def _label(text: str) -> str:
    """Return the text of a bar before its first number."""
    found = _LABEL.match(text)
    return found[1] if found else ""
