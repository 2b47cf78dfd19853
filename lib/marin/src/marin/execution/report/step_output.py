"""Output of steps that run in the run's own process: whole lines with the step's name, however many print at once.

Standard output and error are replaced for the length of a run. Text that a step's function writes is buffered until its
line is complete. A progress bar (a line that a carriage return restarts) is shown by the live view, and written to a
log every `BAR_SECONDS`. Text written outside of steps passes through unchanged.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

# Seconds between two writes of an unfinished progress bar to a log.
BAR_SECONDS: Final = 10.0

_PIECES: Final = re.compile(r"\r?\n|\r|\x1b\[(?P<up>\d*)A|[^\r\n\x1b]+|\x1b(?:\[[0-9;?]*[A-Za-z])?")


@dataclass(slots=True)
class Rows:
    """The unfinished lines of one step, as a terminal would show them: nested progress bars take several.

    Attributes:
        texts: The lines, the first one uppermost.
        bars: For each line, whether a carriage return has restarted it.
        at: Index of the line that is written to.
    """

    texts: list[str] = field(default_factory=lambda: [""])
    bars: list[bool] = field(default_factory=lambda: [False])
    at: int = 0
    _overwrites: bool = False

    def feed(self, text: str) -> list[str]:
        """Add text; return the lines that it completes."""
        whole: list[str] = []
        for match in _PIECES.finditer(text):
            piece = match[0]
            if piece in ("\n", "\r\n"):
                whole += self._end_line()
            elif piece == "\r":
                self.bars[self.at] = self._overwrites = True
            elif match["up"] is not None:
                self.at = max(0, self.at - int(match["up"] or 1))
            else:
                if self.at and not self._overwrites and not self.texts[self.at]:
                    whole += self.settle()  # plain text below bars: they are done
                self.texts[self.at] = piece if self._overwrites else self.texts[self.at] + piece
                self._overwrites = False
        return whole

    def _end_line(self) -> list[str]:
        self._overwrites = False
        if self.at == 0 and not self.bars[0]:
            text = self.texts.pop(0)
            self.bars.pop(0)
            if not self.texts:
                self.texts, self.bars = [""], [False]
            return [text]
        self.at += 1
        if self.at == len(self.texts):
            self.texts.append("")
            self.bars.append(False)
        return []

    def settle(self) -> list[str]:
        """Remove and return the lines above the one that is written to; a bar that has not returned to them is done."""
        whole = [text for text in self.texts[: self.at] if text.strip()]
        del self.texts[: self.at], self.bars[: self.at]
        self.at = 0
        return whole

    def take_open(self) -> str:
        """Remove and return the unfinished line."""
        text, self.texts[self.at], self.bars[self.at] = self.texts[self.at], "", False
        return text

    @property
    def is_bar(self) -> bool:
        """True if there is a progress bar among the lines."""
        return any(self.bars)


@dataclass(slots=True, eq=False)
class Speaker:
    """One step's function, while it runs in this process."""

    name: str
    path: str
    rows: Rows = field(default_factory=Rows)
    stream: TextIO | None = None
    bar_at: float = 0.0
    is_partly_out: bool = False


_speaker: ContextVar[Speaker | None] = ContextVar("marin_step_speaker", default=None)
_current: StepOutput | None = None


class StepOutput:
    """Buffers the text that steps write and passes on complete lines.

    Args:
        prefixed: Whether lines begin with their step's name.
        is_live: Whether a live view shows unfinished lines; without one, flushed text is written at once.
        now: A clock that never goes back, seconds.
    """

    def __init__(self, prefixed: bool, is_live: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._prefixed = prefixed
        self._is_live = is_live
        self._now = now
        self._guard = threading.RLock()
        self._speakers: dict[str, Speaker] = {}
        self._open: Speaker | None = None

    def renew_lock(self) -> None:
        """Replace the lock after a fork: a thread that does not exist in the child may have held it."""
        self._guard = threading.RLock()

    def write(self, stream: TextIO, text: str) -> None:
        """Write text of the current step, or pass it on outside of steps."""
        speaker = _speaker.get()
        if speaker is None:
            with self._guard:
                self._leave_open_line(stream, None)
            stream.write(text)
            return
        with self._guard:
            self._speakers[speaker.path] = speaker
            speaker.stream = stream
            whole = speaker.rows.feed(text)
            if not self._is_live and speaker.rows.is_bar and self._now() >= speaker.bar_at + BAR_SECONDS:
                speaker.bar_at = self._now()
                whole.append(speaker.rows.texts[speaker.rows.at])
            self._emit(speaker, whole)

    def flush(self, stream: TextIO) -> None:
        """Write out the unfinished line, unless a view shows it or it is a progress bar."""
        speaker = _speaker.get()
        if speaker is not None and not self._is_live and not speaker.rows.is_bar:
            with self._guard:
                self._write_partly(speaker, speaker.rows.take_open())
        stream.flush()

    def settle(self) -> None:
        """Pass on complete lines that were held back for a progress bar above them."""
        with self._guard:
            for speaker in list(self._speakers.values()):
                self._emit(speaker, speaker.rows.settle())

    def take_open(self) -> str:
        """Remove and return the unfinished line of the current step: the prompt of a question."""
        speaker = _speaker.get()
        if speaker is None:
            return ""
        with self._guard:
            text = speaker.rows.take_open()
        return f"{self._prefix(speaker)}{text}" if text else ""

    def open_line(self, path: str) -> str:
        """Return the unfinished line of the step at `path`, for a view. Takes no lock: the view holds one."""
        speaker = self._speakers.get(path)
        return "" if speaker is None else next((text for text in list(speaker.rows.texts) if text.strip()), "")

    def end(self, speaker: Speaker) -> None:
        """Write out the unfinished lines of a step whose function has ended."""
        with self._guard:
            self._speakers.pop(speaker.path, None)
            left = [text for text in speaker.rows.texts if text.strip()]
            self._emit(speaker, left)
            self._leave_open_line(speaker.stream, None)

    def _emit(self, speaker: Speaker, lines: Iterable[str]) -> None:
        for line in lines:
            stream = speaker.stream
            assert stream is not None
            self._leave_open_line(stream, speaker)
            prefix = "" if speaker.is_partly_out else self._prefix(speaker)
            speaker.is_partly_out = False
            self._open = None
            stream.write(f"{prefix}{line}\n")

    def _write_partly(self, speaker: Speaker, text: str) -> None:
        if not text or speaker.stream is None:
            return
        self._leave_open_line(speaker.stream, speaker)
        speaker.stream.write(text if speaker.is_partly_out else f"{self._prefix(speaker)}{text}")
        speaker.is_partly_out = True
        self._open = speaker

    def _leave_open_line(self, stream: TextIO | None, speaker: Speaker | None) -> None:
        """Start a new line if another step's unfinished one is on the terminal."""
        if self._open is None or self._open is speaker or stream is None:
            return
        self._open.is_partly_out = False
        self._open = None
        stream.write("\n")

    def _prefix(self, speaker: Speaker) -> str:
        return f"[{speaker.name}] " if self._prefixed else ""


class _Routed:
    """A standard stream whose text goes through a `StepOutput`."""

    def __init__(self, stream: TextIO, output: StepOutput) -> None:
        self._stream = stream
        self._output = output

    def write(self, text: str) -> int:
        self._output.write(self._stream, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self._output.write(self._stream, "".join(lines))

    def flush(self) -> None:
        self._output.flush(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def speaking(name: str, path: str) -> Iterator[None]:
    """Context manager: text printed in this context belongs to the step `name`."""
    speaker = Speaker(name, path)
    token = _speaker.set(speaker)
    try:
        yield
    finally:
        _speaker.reset(token)
        output = _current
        if output is not None:
            output.end(speaker)


@contextlib.contextmanager
def step_output(*, is_parallel: bool) -> Iterator[None]:
    """Context manager: collect what steps print during a run. A run within a step of another run changes nothing.

    Args:
        is_parallel: Whether steps may print at the same time, so that lines need their names.
    """
    global _current
    is_live = bool(getattr(sys.stderr, "has_view", False))
    if _current is not None or not (is_parallel or is_live):
        yield
        return
    output = _current = StepOutput(is_parallel, is_live)
    before = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    # A stream that was closed before the program began is None, which print() accepts.
    routed = {name: _Routed(stream, output) for name, stream in before.items() if stream is not None}
    for name, stream in routed.items():
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in routed.items():
            # A stream that other code has put there meanwhile stays.
            if getattr(sys, name) is stream:
                setattr(sys, name, before[name])
        output.settle()
        _current = None


def current_output() -> StepOutput | None:
    """Return the collector of the present run's output; None when there is none."""
    return _current


def _renew_lock_in_fork() -> None:
    if _current is not None:
        _current.renew_lock()


os.register_at_fork(after_in_child=_renew_lock_in_fork)
