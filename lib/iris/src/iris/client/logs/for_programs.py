"""Hides lines of a task's output that are meant for programs.

A line for programs begins with the character U+0010 (data link escape). Before printing it, a program ends the current
line with a newline, so an empty line right before it is hidden, too. Programs that read logs get all lines.
"""

from iris.client.types import LogLine

MARK = b"\x10"


class ProgramLines:
    """Removes lines for programs from one stream of one attempt."""

    def __init__(self) -> None:
        self._is_open = False  # the last piece was no line's end
        self._is_hidden = False  # it belongs to a line for programs
        self._empty: LogLine | None = None

    def take(self, line: LogLine) -> list[LogLine]:
        """Return the lines, or parts of lines, to show now.

        Args:
            line: The next line.
        """
        if self._is_hidden:
            self._is_hidden = line.partial
            return []
        if not self._is_open and line.data.startswith(MARK):
            self._is_hidden = line.partial
            self._empty = None
            return []
        shown = self.finish()
        if not self._is_open and not line.partial and not line.data:
            self._empty = line
            return shown
        self._is_open = line.partial
        return [*shown, line]

    def finish(self) -> list[LogLine]:
        """Return the buffered text."""
        shown = [] if self._empty is None else [self._empty]
        self._empty = None
        return shown
