"""Output of steps in the run's own process: whole lines with the step's name, even if steps run concurrently.

Standard output and error are replaced during a run. Text from a step's function is buffered until its line is complete.
The live view shows a progress bar (a line that a carriage return restarts); a log gets it every `BAR_SECONDS`. Text
from outside of steps passes through unchanged, and so does the text of a single step without a view. Steps' text also
goes to their logs.
"""

from __future__ import annotations

import codecs
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, TextIO

from marin.execution.log.rows import Rows
from marin.execution.log.standard_streams import Routed, replace_streams
from marin.execution.log.step_log import StepLog

# Seconds between two writes of an unfinished progress bar to a log.
BAR_SECONDS: Final = 10.0
_DECODER: Final = codecs.getincrementaldecoder("utf-8")

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Speaker:
    """One step's function while it runs in this process.

    Attributes:
        name: The step's name.
        path: Its output path.
        log: Its log, or None.
        output: Its run's collector; None outside of any run.
        partly: The part of its unfinished line that was already printed but not logged.
        replicas: The number of its job's replicas that print here, each in a separate context.
        replica: Its replica; None if there is only one.
    """

    name: str
    path: str
    log: StepLog | None = None
    output: StepOutput | None = field(default_factory=lambda: current_output())
    partly: str = ""
    rows: Rows = field(default_factory=Rows)
    stream: TextIO | None = None
    bar_at: float | None = None
    is_partly_out: bool = False
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _DECODER("backslashreplace"))
    replicas: int = 1
    replica: int | None = None
    parts: dict[int, Speaker] = field(default_factory=dict)

    def here(self) -> Speaker:
        """Return the speaker of the calling replica, or this one if there is only one."""
        if self.replicas == 1:
            return self
        from fray.replica import replica_index

        index = replica_index()
        part = self.parts.get(index)
        if part is None:
            # Lines of several replicas never share a row, nor does a view show them.
            part = Speaker(f"{self.name}/{index}", f"{self.path}#{index}", self.log, self.output, replica=index)
            part = self.parts.setdefault(index, part)
        return part

    def add_to_log(self, lines: Sequence[str]) -> None:
        """Add whole lines to the log, if there is one."""
        if self.log is not None:
            mark = "" if self.replica is None else f"[{self.replica}] "
            self.log.add([f"{mark}{line}" for line in lines] if mark else lines)


class Screen:
    """The output of the collectors of all runs in a process: one lock, and at most one unfinished line.

    Attributes:
        guard: Held while text is written.
        open: The step whose unfinished line is printed.
    """

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.open: Speaker | None = None
        self._is_lost = False

    def leave_open_line(self, stream: TextIO | None, speaker: Speaker | None) -> None:
        """Start a new line if the terminal has another step's unfinished one."""
        if self.open is None or self.open is speaker or stream is None:
            return
        self.open.is_partly_out = False
        self.open = None
        self.show(stream, "\n")

    def show(self, stream: TextIO, text: str, raw: bytes | None = None) -> None:
        """Print a step's text while the stream has a reader. The log also has the text, so a failure does not fail the
        step.

        Args:
            stream: The stream to write to.
            text: The text.
            raw: The original bytes, if the text came as bytes. They are written unchanged.
        """
        try:
            if raw is None:
                stream.write(text)
            else:
                stream.flush()
                stream.buffer.write(raw)
        except OSError as error:
            self._lose(error)

    def pass_on(self, stream: TextIO) -> None:
        """Flush a stream, like `show`."""
        try:
            stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        if not self._is_lost:
            self._is_lost = True  # before the record, which may come back here
            logger.warning("the output of steps can no longer be shown (%s); their logs have it", error)


_screen = Screen()
_speaker: ContextVar[Speaker | None] = ContextVar("marin_step_speaker", default=None)
_of_run: ContextVar[StepOutput | None] = ContextVar("marin_step_output", default=None)
# Those of the runs of this process, the oldest first.
_outputs: list[StepOutput] = []


class StepOutput:
    """Buffer the text of steps and pass on complete lines.

    Args:
        prefixed: Whether to prefix lines with their step's name.
        is_live: Whether a live view shows unfinished lines. Without one, flushed text is written immediately.
        passes: Whether to write text immediately; only the logs get lines.
        now: A monotonic clock in seconds.
        screen: The output, shared with other runs.
    """

    def __init__(
        self,
        prefixed: bool,
        is_live: bool,
        now: Callable[[], float] = time.monotonic,
        passes: bool = False,
        screen: Screen | None = None,
    ) -> None:
        self._passes = passes
        self._prefixed = prefixed
        self._is_live = is_live
        self._now = now
        self._screen = screen or Screen()
        self._speakers: dict[str, Speaker] = {}

    def renew_lock(self) -> None:
        """Replace the locks after a fork: a thread that does not exist in the child may have held them."""
        self._screen.guard = threading.RLock()
        for speaker in list(self._speakers.values()):
            if speaker.log is not None:
                speaker.log.renew_lock()

    def write(self, stream: TextIO, text: str) -> None:
        """Write text of the current step, or pass it on outside of steps."""
        speaker = _current_speaker()
        if speaker is None:
            with self._screen.guard:
                self._screen.leave_open_line(stream, None)
            stream.write(text)
            return
        self._take(speaker, stream, text, None)

    def write_bytes(self, stream: TextIO, raw: bytes) -> None:
        """Like `write`, for bytes that a step wrote to the stream's `buffer`."""
        speaker = _current_speaker()
        if speaker is None:
            with self._screen.guard:
                self._screen.leave_open_line(stream, None)
            stream.flush()
            stream.buffer.write(raw)
            return
        self._take(speaker, stream, speaker.decoder.decode(raw), raw)

    def _take(self, speaker: Speaker, stream: TextIO, text: str, raw: bytes | None) -> None:
        with self._screen.guard:
            self._speakers[speaker.path] = speaker
            speaker.stream = stream
            whole = speaker.rows.feed(text)
            if not self._is_live and speaker.rows.is_bar:
                whole += self._bar_now(speaker)
            if self._passes_on(speaker):
                self._screen.show(stream, text, raw)
            self._emit(speaker, whole)

    def _bar_now(self, speaker: Speaker) -> list[str]:
        """Return the state of a bar that was not logged for a while."""
        text, now = speaker.rows.texts[speaker.rows.at], self._now()
        speaker.bar_at = now if speaker.bar_at is None else speaker.bar_at
        if not text.strip() or now < speaker.bar_at + BAR_SECONDS:
            return []
        speaker.bar_at = now
        return [text]

    def flush(self, stream: TextIO) -> None:
        """Print the unfinished line, unless a view shows it or it is a progress bar."""
        speaker = _current_speaker()
        is_alone = speaker is not None and speaker.replica is None
        if speaker is not None and is_alone and not self._is_live and not self._passes and not speaker.rows.is_bar:
            with self._screen.guard:
                self._write_partly(speaker, speaker.rows.take_open())
        if speaker is None:
            stream.flush()
        else:
            self._screen.pass_on(stream)

    def settle(self) -> None:
        """Pass on complete lines that were kept back because of a progress bar above them."""
        with self._screen.guard:
            for speaker in list(self._speakers.values()):
                self._emit(speaker, speaker.rows.settle())

    def take_open(self) -> str:
        """Remove and return the unfinished line of the current step: the prompt of a question."""
        speaker = _current_speaker()
        if speaker is None:
            return ""
        with self._screen.guard:
            text = speaker.rows.take_open()
        return f"{self._prefix(speaker)}{text}" if text else ""

    def open_line(self, path: str) -> str:
        """Return the unfinished line of the step at `path`, for a view. It takes no lock, because the view
        holds one.
        """
        speaker = self._speakers.get(path)
        return "" if speaker is None else next((text for text in list(speaker.rows.texts) if text.strip()), "")

    def end(self, speaker: Speaker) -> None:
        """Print the unfinished lines of a step whose function has ended."""
        if speaker.stream is None:  # it has written nothing
            return
        with self._screen.guard:
            self._speakers.pop(speaker.path, None)
            left = speaker.rows.end()
            self._emit(speaker, left)
            if left and self._passes_on(speaker):
                self._screen.show(speaker.stream, "\n")  # what comes next begins a line of its own
            self._screen.leave_open_line(speaker.stream, None)
            if speaker.partly:
                speaker.add_to_log([speaker.partly])
                speaker.partly = ""

    def _emit(self, speaker: Speaker, lines: Sequence[str]) -> None:
        if lines and speaker.log is not None:
            speaker.add_to_log([speaker.partly + lines[0], *lines[1:]])
            speaker.partly = ""
        if self._passes_on(speaker):
            return
        for line in lines:
            stream = speaker.stream
            assert stream is not None
            self._screen.leave_open_line(stream, speaker)
            prefix = "" if speaker.is_partly_out else self._prefix(speaker)
            speaker.is_partly_out = False
            self._screen.open = None
            self._screen.show(stream, f"{prefix}{line}\n")

    def _write_partly(self, speaker: Speaker, text: str) -> None:
        if not text or speaker.stream is None:
            return
        self._screen.leave_open_line(speaker.stream, speaker)
        self._screen.show(speaker.stream, text if speaker.is_partly_out else f"{self._prefix(speaker)}{text}")
        speaker.partly += text
        speaker.is_partly_out = True
        self._screen.open = speaker

    def _passes_on(self, speaker: Speaker) -> bool:
        return self._passes and speaker.replica is None

    def _prefix(self, speaker: Speaker) -> str:
        return f"[{speaker.name}] " if self._prefixed or speaker.replica is not None else ""


def _current_speaker() -> Speaker | None:
    speaker = _speaker.get()
    return None if speaker is None else speaker.here()


@contextlib.contextmanager
def speaking(name: str, path: str, log: StepLog | None = None) -> Iterator[None]:
    """Context manager: text printed in this context belongs to the step `name` and goes to its log.

    Args:
        name: The step's name.
        path: Its output path.
        log: The step's log, or None.
    """
    speaker = Speaker(name, path, log)
    token = _speaker.set(speaker)
    try:
        yield
    finally:
        _speaker.reset(token)
        end_speech(speaker)


@contextlib.contextmanager
def spoken_by(speaker: Speaker) -> Iterator[None]:
    """Context manager: text printed in this context and its copies belongs to this speaker until `end_speech`."""
    token = _speaker.set(speaker)
    try:
        yield
    finally:
        _speaker.reset(token)


def end_speech(speaker: Speaker) -> None:
    """Print the unfinished lines of a speaker."""
    if speaker.output is not None:
        for each in (*list(speaker.parts.values()), speaker):
            speaker.output.end(each)


@contextlib.contextmanager
def step_output(*, is_parallel: bool) -> Iterator[None]:
    """Context manager: collect the output of steps during a run. A run inside a step of another run has no effect.

    Concurrent runs in several threads each have a collector and share the redirected streams.

    Args:
        is_parallel: Whether steps may print concurrently, so that lines need their names.
    """
    global _put_back
    if _speaker.get() is not None:
        yield
        return
    with _runs_guard:
        is_live = bool(getattr(sys.stderr, "has_view", False))
        is_parallel = is_parallel or bool(_outputs)
        output = StepOutput(is_parallel, is_live, passes=not (is_parallel or is_live), screen=_screen)
        if not _outputs:
            _put_back = replace_streams(lambda stream: Routed(stream, _collector, lambda: _speaker.get() is not None))
        _outputs.append(output)
    token = _of_run.set(output)
    try:
        yield
    finally:
        _of_run.reset(token)
        output.settle()
        with _runs_guard:
            _outputs.remove(output)
            if not _outputs:
                _put_back()


_runs_guard = threading.Lock()
_put_back: Callable[[], None] = lambda: None  # noqa: E731


def _collector() -> StepOutput | None:
    speaker = _speaker.get()
    return current_output() if speaker is None else speaker.output or current_output()


def current_output() -> StepOutput | None:
    """Return the collector of the current run, or outside of runs the oldest collector, or None."""
    output = _of_run.get()
    if output is not None and output in _outputs:
        return output
    outputs = _outputs[:1]
    return outputs[0] if outputs else None


def _renew_locks_in_fork() -> None:
    global _runs_guard
    _runs_guard = threading.Lock()
    for output in _outputs:
        output.renew_lock()


os.register_at_fork(after_in_child=_renew_locks_in_fork)
