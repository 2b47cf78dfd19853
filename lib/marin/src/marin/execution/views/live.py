"""The live view of a run on a terminal: ended steps, and below them active steps with their progress.

Cached steps are only counted, because an experiment may have thousands of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TextIO

from marin.execution.log.step_output import current_output
from marin.execution.report.earlier_runs import read_usual_seconds
from marin.execution.report.events import RunEnded, RunEvent, RunStarted, StepEnd, StepEnded, StepRetrying
from marin.execution.report.words import MOST_LINES, end_words, retry_words
from marin.execution.views.drawing import STYLES, Pen
from marin.execution.views.streams import above_the_view
from marin.execution.views.watching import RunView
from rigging.text.printable import printable

_ERASE_ROW: Final = "\x1b[2K\x1b[B"

_views: weakref.WeakSet[LiveView] = weakref.WeakSet()


class LiveView(RunView):
    """An observer that draws a run on a terminal: ended steps scroll by, active steps stay at the bottom.

    During the run, text written to stdout and stderr (including log records) appears above the view. It does not use
    rich's live display, which would treat parts of prompts and progress bars as lines, and cannot handle steps that ask
    questions.

    Args:
        terminal: The output terminal.
        size: Returns the terminal's columns and lines.
        now: Returns the current time, in seconds since the epoch.
        usual: Returns the duration of steps in earlier runs by name, given the run's info file.
        summary: Whether to list the steps at the end of the run.
    """

    def __init__(
        self,
        terminal: TextIO,
        size: Callable[[], tuple[int, int]] = lambda: tuple(shutil.get_terminal_size()),  # type: ignore[assignment,return-value]
        now: Callable[[], float] = time.time,
        usual: Callable[[str], Mapping[str, float]] = read_usual_seconds,
        *,
        summary: bool = False,
    ) -> None:
        super().__init__(now, usual)
        self._has_summary = summary
        self._terminal = terminal
        self._size = size
        self._pen = Pen(terminal)
        _views.add(self)
        # Of each line that is drawn, how many columns it takes.
        self._drawn: tuple[int, ...] = ()
        self._line_open = False
        self._held: list[str] | None = None
        self._redirected = contextlib.ExitStack()

    def renew_lock(self) -> None:
        """Replace the lock after a fork: the drawing thread, which does not exist in the child, may have held it."""
        self.guard = threading.RLock()

    def on_event(self, event: RunEvent) -> None:
        """Show an event."""
        # Not under the guard: log handlers hold locks of their own while they write above the view.
        if isinstance(event, RunStarted):
            self._redirected.enter_context(above_the_view(self))
        elif isinstance(event, RunEnded):
            self._redirected.close()
        super().on_event(event)

    def show(self, event: RunEvent) -> None:
        """Write news about ended steps, failed attempts and the end of the run above the view."""
        if isinstance(event, StepEnded) and (event.status is not StepEnd.CACHED or event.differences):
            self._write_above(self._pen.draw([self._pen.line(end_words(event), STYLES[event.status])]))
        elif isinstance(event, StepRetrying):
            words = f"{retry_words(event)} -> {event.path}: {event.error}"
            self._write_above(self._pen.draw([self._pen.line(words, "yellow")]))
        elif isinstance(event, RunEnded):
            ends = self._pen.summary(self.run, MOST_LINES) if self._has_summary else ()
            lines = [self.run.counts(event.time), *(line.plain for line in ends)]
            self._terminal.write(self._erasure() + "".join(f"{printable(line)}\n" for line in lines))
            self._terminal.flush()
            self._drawn = ()

    def draw(self) -> None:
        """Redraw the view."""
        output = current_output()
        if output is not None:
            output.settle()
        with self.guard:
            if self._held is not None:
                return
            width, height = self._size()
            open_line = (lambda _: "") if output is None else output.open_line
            lines = self._pen.view(self.run, self._now(), width, max(3, height - 1), open_line)
            if self._line_open:
                lines = []  # a program's own unfinished line stands where the view would begin
            # One write: what a terminal shows in between is neither the old view nor the new one.
            self._terminal.write(self._erasure() + self._pen.draw(lines))
            self._terminal.flush()
            self._drawn = tuple(line.cell_len for line in lines)

    def write_above(self, text: str) -> None:
        """Write a program's text above the view."""
        with self.guard:
            self._write_above(text)

    @contextlib.contextmanager
    def answering(self, prompt: str) -> Iterator[None]:
        """Context manager: leave the terminal to a prompt. Text written meanwhile is shown after the answer.

        Args:
            prompt: The part of the prompt that is not yet on the terminal.
        """
        with self.guard:
            self._write_above(prompt)
            nested, self._held = self._held, [] if self._held is None else self._held
        try:
            yield
        finally:
            with self.guard:
                held, self._held = self._held, nested
                self._line_open = False  # the answer ended the line
                if nested is None:
                    self._write_above("".join(held or ()))

    def _write_above(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
            return
        self._terminal.write(self._erasure() + text)
        self._drawn = ()
        if text:
            self._line_open = not text.endswith("\n")
        self._terminal.flush()

    def _erasure(self) -> str:
        """Return the text that erases the view, including lines wrapped by a terminal that became narrower."""
        if not self._drawn:
            return ""
        width = max(1, self._size()[0])
        rows = sum(max(1, -(-cells // width)) for cells in self._drawn)
        # Row by row: what is erased at once from the top of the screen, tmux adds to its history.
        return f"\x1b[{rows}F{_ERASE_ROW * rows}\x1b[{rows}F"


def _renew_locks_in_fork() -> None:
    for view in _views:
        view.renew_lock()


os.register_at_fork(after_in_child=_renew_locks_in_fork)
