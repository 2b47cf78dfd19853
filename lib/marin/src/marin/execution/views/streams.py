"""Standard streams on a terminal with a live view: text goes above the view, and questions pause it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TextIO

from marin.execution.log.standard_streams import replace_streams
from marin.execution.log.step_output import current_output


class Screen(Protocol):
    """The part of a view that the streams use."""

    def write_above(self, text: str) -> None:
        """Write a program's text above the view."""

    def answering(self, prompt: str) -> AbstractContextManager[None]:
        """Context manager: leave the terminal to a prompt whose remaining part is `prompt`."""


@contextlib.contextmanager
def above_the_view(view: Screen) -> Iterator[None]:
    """Context manager: send stdout and stderr, if they are the terminal, and their log handlers above a view."""
    above: list[Above] = []

    def made(stream: TextIO) -> Above | None:
        if not stream.isatty():
            return None
        above.append(Above(stream, view))
        return above[-1]

    put_back = replace_streams(made)
    keyboard = sys.stdin
    if keyboard is not None and above and keyboard.isatty():
        sys.stdin = Keyboard(keyboard, view, above)
    try:
        yield
    finally:
        put_back()
        sys.stdin = keyboard
        for each in above:
            each.release()


class Above:
    """A terminal stream whose text goes above a view.

    Attributes:
        has_view: Shows other runs that this terminal has a view.
        is_left: Whether a debugger temporarily has the terminal.
    """

    has_view = True

    def __init__(self, stream: TextIO, view: Screen) -> None:
        self._stream = stream
        self._view = view
        self._descriptor = -1
        self.is_left = False

    def write(self, text: str) -> int:
        """Write text above the view."""
        self._view.write_above(text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write texts above the view."""
        self._view.write_above("".join(lines))

    def fileno(self) -> int:
        """Return a copy of the descriptor: with the original, `input()` would bypass the view.

        A debugger that has the terminal gets the original.
        """
        if self.is_left:
            return self._stream.fileno()
        if self._descriptor < 0:
            self._descriptor = os.dup(self._stream.fileno())
        return self._descriptor

    def release(self) -> None:
        """Close the descriptor that `fileno` returned, if it was called."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Keyboard:
    """Standard input on a terminal with a view. The view pauses while a line is read (at a prompt of pdb, for example).

    Concurrent questions from several steps are answered one after another.
    """

    def __init__(self, stream: TextIO, view: Screen, above: Sequence[Above] = ()) -> None:
        self._stream = stream
        self._view = view
        self._above = above
        self._turn = threading.Lock()

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Context manager: leave the terminal to a debugger that writes to it itself. Other questions wait."""
        with self._turn, self._view.answering(""):
            for each in self._above:
                each.is_left = True
            standard, sys.stdin = sys.stdin, self._stream
            try:
                yield
            finally:
                sys.stdin = standard
                for each in self._above:
                    each.is_left = False

    def readline(self, size: int = -1) -> str:
        """Read a line while the view is paused."""
        output = current_output()
        with self._turn, self._view.answering("" if output is None else output.take_open()):
            return self._stream.readline(size)

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
