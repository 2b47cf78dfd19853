"""The live view of a run on a terminal: running steps with their times and paths, below the steps that have ended.

Steps whose output was there are only counted: an experiment may have thousands of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TextIO

from marin.execution.report.events import (
    RunEnded,
    RunEvent,
    RunStarted,
    StepEnd,
    StepEnded,
    StepJobQueued,
    StepQueued,
    StepStarted,
)
from marin.execution.report.log_lines import count_words, end_words, queue_words
from marin.execution.report.step_output import current_output

REDRAW_SECONDS = 0.2

_ERASE_BELOW = "\x1b[J"
_COLOURS = {
    StepEnd.CACHED: "\x1b[2m",
    StepEnd.SUCCEEDED: "\x1b[32m",
    StepEnd.FAILED: "\x1b[31m",
    StepEnd.LOST: "\x1b[31m",
    StepEnd.DEP_FAILED: "\x1b[33m",
}
_PLAIN = "\x1b[0m"


@dataclass(slots=True)
class RunProgress:
    """The progress of a run, computed from its events without a clock or a terminal.

    Attributes:
        started: When the run began, in seconds since the epoch.
        total: The number of its steps; None when it is not known beforehand.
        waiting: Names of steps that wait, by path.
        queued: Name of steps whose job is queued, and why, by path.
        running: Name and start of running steps, by path.
        ended: How many ended in each way.
    """

    started: float = 0.0
    total: int | None = None
    waiting: dict[str, str] = field(default_factory=dict)
    queued: dict[str, tuple[str, str]] = field(default_factory=dict)
    running: dict[str, tuple[str, float]] = field(default_factory=dict)
    ended: dict[StepEnd, int] = field(default_factory=lambda: dict.fromkeys(StepEnd, 0))

    def take(self, event: RunEvent) -> None:
        """Update the progress by an event."""
        match event:
            case RunStarted(time=when, steps=steps):
                self.started, self.total = when, steps
            case StepQueued(path=path, name=name):
                self.waiting[path] = name
            case StepJobQueued(path=path, name=name, reason=reason):
                self.waiting.pop(path, None)
                self.queued[path] = (name, reason)
            case StepStarted(path=path, name=name, time=when):
                self.waiting.pop(path, None)
                self.queued.pop(path, None)
                self.running[path] = (name, when)
            case StepEnded(path=path, status=status):
                self.waiting.pop(path, None)
                self.queued.pop(path, None)
                self.running.pop(path, None)
                self.ended[status] += 1
            case RunEnded():
                pass

    def lines(self, now: float, width: int, height: int, open_line: Callable[[str], str] = lambda _: "") -> list[str]:
        """Return the lines of the view.

        Args:
            now: Seconds since the epoch.
            width: At most this many characters a line.
            height: At most this many lines.
            open_line: Returns the unfinished line (a progress bar) of the step at a path; "" for none.
        """
        room = max(1, height - 2)
        steps = list(self.running.items())
        shown = steps if len(steps) <= room else steps[: room - 1]
        name_width = min(40, max((len(name) for _, (name, _) in shown), default=0))
        lines = []
        for path, (name, when) in shown:
            lines.append(f"  {name:<{name_width}}  {clock_text(now - when):>7}  {path}")
            unfinished = open_line(path)
            # A progress bar takes a line of its own; when there is not enough room, steps come first.
            if unfinished and len(lines) + len(shown) < room:
                lines.append(f"    {unfinished}")
        if len(shown) < len(steps):
            lines.append(f"  and {len(steps) - len(shown)} more at work")
        for path, (name, reason) in list(self.queued.items())[: max(0, room - len(lines))]:
            lines.append(f"  {name}  {queue_words(reason)}  {path}")
        return [line[: width - 1] for line in (*lines, self.summary(now))]

    def summary(self, now: float) -> str:
        """Return the counts in one line."""
        queued = f"{len(self.queued)} queued, " if self.queued else ""
        counts = f"{len(self.running)} running, {queued}{len(self.waiting)} waiting, {count_words(self.ended)}"
        total = "" if self.total is None else f"{sum(self.ended.values())}/{self.total} steps: "
        return f"[{clock_text(now - self.started)}] {total}{counts}"


def clock_text(seconds: float) -> str:
    """Return a duration as `5.2s`, `3:05` or `1:02:03`."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_views: weakref.WeakSet[LiveView] = weakref.WeakSet()


class LiveView:
    """Observer that draws a run on a terminal: ended steps scroll by, running steps stay at the bottom.

    During the run, text written to stdout and stderr (log records too) goes above the view.

    Args:
        terminal: Where to draw.
        size: Returns the terminal's columns and lines.
        now: Returns seconds since the epoch.
    """

    def __init__(
        self,
        terminal: TextIO,
        size: Callable[[], tuple[int, int]] = lambda: tuple(shutil.get_terminal_size()),  # type: ignore[assignment,return-value]
        now: Callable[[], float] = time.time,
    ) -> None:
        self.progress = RunProgress()
        self._terminal = terminal
        self._size = size
        self._now = now
        self._guard = threading.RLock()
        _views.add(self)
        self._drawn = 0
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
            self._redirected.enter_context(self._above_the_view())
        elif isinstance(event, RunEnded):
            self._redirected.close()
        with self._guard:
            if isinstance(event, RunStarted):
                self.progress = RunProgress()
                self._done = threading.Event()
                threading.Thread(target=self._redraw, args=(self._done,), name="marin-view", daemon=True).start()
            self.progress.take(event)
            if isinstance(event, StepEnded) and (event.status is not StepEnd.CACHED or event.differences):
                self._write_above(f"{_COLOURS[event.status]}{end_words(event)}{_PLAIN}\n")
            elif isinstance(event, RunEnded):
                self._done.set()
                self._erase()
                end = f" (ended by {event.error})" if event.error is not None else ""
                self._terminal.write(f"{self.progress.summary(event.time)}{end}\n")
                self._terminal.flush()

    def draw(self) -> None:
        """Redraw the view."""
        with self._guard:
            if self._held is not None:
                return
            self._erase()
            if self._line_open:
                return  # a program's own unfinished line stands where the view would begin
            width, height = self._size()
            output = current_output()
            open_line = (lambda _: "") if output is None else output.open_line
            lines = self.progress.lines(self._now(), width, max(3, height - 1), open_line)
            self._terminal.write("".join(line + "\n" for line in lines))
            self._terminal.flush()
            self._drawn = len(lines)

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
        self._erase()
        self._terminal.write(text)
        if text:
            self._line_open = not text.endswith("\n")
        self._terminal.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._terminal.write(f"\x1b[{self._drawn}F{_ERASE_BELOW}")
            self._drawn = 0

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

    @contextlib.contextmanager
    def _above_the_view(self) -> Iterator[None]:
        """Send stdout and stderr, if they are the terminal, and the handlers that write to them, above the view."""
        streams = {stream: _Above(stream, self) for stream in (sys.stdout, sys.stderr) if stream and stream.isatty()}
        handlers = [
            handler
            for handler in logging.getLogger().handlers
            if type(handler) is logging.StreamHandler and handler.stream in streams
        ]
        before = sys.stdout, sys.stderr
        keyboard = sys.stdin
        if keyboard is not None and streams and keyboard.isatty():
            sys.stdin = _Keyboard(keyboard, self)
        sys.stdout = streams.get(sys.stdout, sys.stdout)
        sys.stderr = streams.get(sys.stderr, sys.stderr)
        originals = [(handler, handler.setStream(streams[handler.stream])) for handler in handlers]
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            sys.stdin = keyboard
            for handler, original in originals:
                handler.setStream(original)
            for above in streams.values():
                above.release()


class _Above:
    """A terminal stream whose text goes above a view.

    Attributes:
        has_view: Tells other runs that there is a view on this terminal.
    """

    has_view = True

    def __init__(self, stream: TextIO, view: LiveView) -> None:
        self._stream = stream
        self._view = view
        self._descriptor = -1

    def write(self, text: str) -> int:
        self._view.write_above(text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        self._view.write_above("".join(lines))

    def fileno(self) -> int:
        # A copy: with the terminal's own descriptor, `input()` would write its prompt past the view.
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


class _Keyboard:
    """Standard input on a terminal with a view: the view rests while a line is read (at a prompt of pdb, say)."""

    def __init__(self, stream: TextIO, view: LiveView) -> None:
        self._stream = stream
        self._view = view

    def readline(self, size: int = -1) -> str:
        output = current_output()
        with self._view.answering("" if output is None else output.take_open()):
            return self._stream.readline(size)

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _renew_locks_in_fork() -> None:
    for view in _views:
        view.renew_lock()


os.register_at_fork(after_in_child=_renew_locks_in_fork)
