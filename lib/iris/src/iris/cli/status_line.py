"""Shows a command's current phase on stderr: one rewritten line on a terminal, plain lines elsewhere."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Final, TextIO

from iris.cli.output import say, terminal_size_of
from rigging.text.printable import printable

_ERASE: Final = "\r\x1b[K"


class StatusLine:
    """The current phase of a long operation. Several threads may use it.

    As a context manager, the line disappears at the end of the block.

    Args:
        stream: The output stream; None for stderr.
        is_live: Whether the line is rewritten. None: on a capable terminal, outside of CI.
        quiet: Print no phases.
        tell: Prints a plain line.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        is_live: bool | None = None,
        quiet: bool = False,
        tell: Callable[[str], None] = say,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.is_live = (is_terminal(self._stream) if is_live is None else is_live) and not quiet
        self._quiet = quiet
        self._tell = tell
        self._guard = threading.RLock()
        self._is_shown = False

    def __enter__(self) -> "StatusLine":
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Show the current phase in place of the previous one, only on a terminal."""
        with self._guard:
            if not self.is_live:
                return
            line = printable(f"iris: {text}")[: max(1, terminal_size_of(self._stream) - 1)]
            self._is_shown = self._write(f"{_ERASE}{line}")

    def phase(self, text: str) -> None:
        """Print a plain line about a phase, unless the terminal shows the phase or `quiet` is set."""
        if not self.is_live and not self._quiet:
            self._tell(text)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        with self._guard:
            self.clear()
            self._tell(text)

    def clear(self) -> None:
        """Remove the line before other terminal output."""
        if self._is_shown:
            with self._guard:
                self._write(_ERASE)
                self._is_shown = False

    def retire(self) -> None:
        """Stop rewriting the line. Later phases are plain lines."""
        if self.is_live:
            with self._guard:
                self.clear()
                self.is_live = False

    def _write(self, text: str) -> bool:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self.is_live = False  # stderr is closed; the command goes on
            return False
        return True


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a line can be rewritten on a stream."""
    if os.environ.get("TERM", "dumb") == "dumb" or "CI" in os.environ:
        return False
    return stream is not None and stream.isatty()
