"""The live view of a run on a terminal: steps at work, with how far they are, below the steps that have ended.

Steps whose output was there are only counted: an experiment may have thousands of them.
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

from marin.execution.report.earlier_runs import read_usual_seconds
from marin.execution.report.events import RunEnded, RunEvent, RunStarted, StepEnd, StepEnded, StepRetrying
from marin.execution.report.live.drawing import Drawn, Pen
from marin.execution.report.live.streams import above_the_view
from marin.execution.report.log_lines import end_words, retry_words
from marin.execution.report.run_progress import RunProgress
from marin.execution.report.step_output import current_output
from marin.execution.report.summary import row_of, summary_text_lines
from rigging.text.printable import printable

REDRAW_SECONDS: Final = 0.2

_ERASE_ROW: Final = "\x1b[2K\x1b[B"


_views: weakref.WeakSet[LiveView] = weakref.WeakSet()


class LiveView:
    """Observer that draws a run on a terminal: ended steps scroll by, steps at work stay at the bottom.

    During the run, text written to stdout and stderr (log records too) goes above the view. rich's own live display is
    not used: it would take pieces of prompts and progress bars for lines, and knows of no steps that ask questions.

    Args:
        terminal: Where to draw.
        size: Returns the terminal's columns and lines.
        now: Returns seconds since the epoch.
        usual: Returns how long steps took in earlier runs, by name, given the run's info file.
        summary: Whether the run ends with a list of its steps.
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
        self._has_summary = summary
        self._usual = usual
        self.progress = RunProgress()
        self._terminal = terminal
        self._size = size
        self._now = now
        self._pen = Pen(terminal)
        self._guard = threading.RLock()
        _views.add(self)
        self._drawn = Drawn()
        self._line_open = False
        self._held: list[str] | None = None
        self._done = threading.Event()
        self._redirected = contextlib.ExitStack()

    def renew_lock(self) -> None:
        """Replace the lock after a fork: the drawing thread, which does not exist in the child, may have held it."""
        self._guard = threading.RLock()

    def on_event(self, event: RunEvent) -> None:
        """Show an event."""
        # Not under the guard: log handlers hold locks of their own while they write above the view.
        if isinstance(event, RunStarted):
            self._redirected.enter_context(above_the_view(self))
        elif isinstance(event, RunEnded):
            self._redirected.close()
        with self._guard:
            if isinstance(event, RunStarted):
                self.progress = RunProgress()
                self._done = threading.Event()
                if event.info_path is not None:
                    self._look_back(event.info_path, self.progress)
                threading.Thread(target=self._redraw, args=(self._done,), name="marin-view", daemon=True).start()
            self.progress.take(event)
            if isinstance(event, StepEnded) and (event.status is not StepEnd.CACHED or event.differences):
                self._write_above(self._pen.end_line(event.status, end_words(event)))
            elif isinstance(event, StepRetrying):
                words = f"{retry_words(event)} -> {event.path}: {event.error}"
                self._write_above(self._pen.warning_line(words))
            elif isinstance(event, RunEnded):
                self._done.set()
                self._erase()
                end = f" (ended by {event.error})" if event.error is not None else ""
                lines = [f"{self.progress.summary(event.time)}{end}", *(self._summary() if self._has_summary else ())]
                self._terminal.write("".join(f"{printable(line)}\n" for line in lines))
                self._terminal.flush()

    def draw(self) -> None:
        """Redraw the view."""
        with self._guard:
            if self._held is not None:
                return
            if self._line_open:
                self._erase()
                return  # a program's own unfinished line stands where the view would begin
            width, height = self._size()
            height = max(3, height - 1)
            output = current_output()
            open_line = (lambda _: "") if output is None else output.open_line
            # One line is for the counts, and one for those that are left out.
            shown = self.progress.shown(self._now(), most=height - 2)
            drawn = self._pen.view(shown, width, open_line, height)
            # One write: what a terminal shows in between is neither the old view nor the new one.
            self._terminal.write(self._erasure() + drawn.text)
            self._terminal.flush()
            self._drawn = drawn

    def write_above(self, text: str) -> None:
        """Write a program's text above the view."""
        with self._guard:
            self._write_above(text)

    @contextlib.contextmanager
    def answering(self, prompt: str) -> Iterator[None]:
        """Context manager: leave the terminal to a prompt; text written meanwhile is shown after the answer.

        Args:
            prompt: The part of the prompt that is not on the terminal yet.
        """
        with self._guard:
            self._write_above(prompt)
            nested, self._held = self._held, [] if self._held is None else self._held
        try:
            yield
        finally:
            with self._guard:
                held, self._held = self._held, nested
                self._line_open = False  # the answer ended the line
                if nested is None:
                    self._write_above("".join(held or ()))

    def _write_above(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
            return
        self._terminal.write(self._erasure() + text)
        self._drawn = Drawn()
        if text:
            self._line_open = not text.endswith("\n")
        self._terminal.flush()

    def _summary(self) -> list[str]:
        progress = self.progress
        left_out = dict(progress.ended)
        for event in progress.ends:
            left_out[event.status] -= 1
        return summary_text_lines([row_of(event) for event in progress.ends], left_out)

    def _erase(self) -> None:
        self._terminal.write(self._erasure())
        self._drawn = Drawn()

    def _erasure(self) -> str:
        """Return what removes the view from the terminal, which may have another width by now."""
        if not self._drawn.cells:
            return ""
        rows = self._drawn.rows(self._size()[0])
        # Row by row: what is erased at once from the top of the screen, tmux adds to its history.
        return f"\x1b[{rows}F{_ERASE_ROW * rows}\x1b[{rows}F"

    def _look_back(self, info_path: str, progress: RunProgress) -> None:
        """Find out, without holding up the run, how long its steps took in earlier runs."""

        def look() -> None:
            progress.usual = self._usual(info_path)

        threading.Thread(target=look, name="marin-earlier-runs", daemon=True).start()

    def _redraw(self, done: threading.Event) -> None:
        while not done.wait(REDRAW_SECONDS):
            output = current_output()
            if output is not None:
                output.settle()
            with self._guard:
                if done.is_set():
                    return
                try:
                    self.draw()
                except (OSError, ValueError):
                    return  # the terminal is gone; the run goes on


def _renew_locks_in_fork() -> None:
    for view in _views:
        view.renew_lock()


os.register_at_fork(after_in_child=_renew_locks_in_fork)
