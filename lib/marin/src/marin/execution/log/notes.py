"""Notes from the process of a step's job to the run that waits for it, sent as lines of its output.

Progress, resource use and the state of its log are sent through the output on every backend. The run removes these
lines, so they are neither shown nor logged. A program that prints a fake note only misreports its own step.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Final

from marin.execution.report.events import RunEvent, StepProgressed
from marin.execution.report.progress import StepProgress, Use

# A line that begins with U+0010 is for programs: iris shows it to nobody (docs/iris-cli.md).
MARK: Final = "\x10marin "
# A line at most so often: output is read at intervals, and kept.
_PAUSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class ProgressNote:
    """The progress of a function."""

    done: float
    total: float


@dataclass(frozen=True, slots=True)
class LogNote:
    """A process writes its own part of the step's log.

    Attributes:
        log: The heading of that part; "" if it cannot write one.
        replica: The process's replica.
        guarded: Whether another process completes the part after a kill.
    """

    log: str
    replica: int
    guarded: bool


@dataclass(frozen=True, slots=True)
class LogEndNote:
    """A process's part of the step's log is complete. Later output is not in it.

    Attributes:
        log_end: The part's heading.
        failed: Whether the function failed, as recorded in the log and the step's error file.
    """

    log_end: str
    failed: bool


@dataclass(frozen=True, slots=True)
class HereNote:
    """All earlier output of a process precedes this line."""

    here: str


@dataclass(frozen=True, slots=True)
class ValueNote:
    """The function's return value is stored, or cannot be stored.

    Attributes:
        kept_under: The id of the lease held at that time.
    """

    kept_under: str


Note = ProgressNote | Use | LogNote | LogEndNote | HereNote | ValueNote
_KINDS: Final[tuple[type[Note], ...]] = (ProgressNote, Use, LogNote, LogEndNote, HereNote, ValueNote)


def job_progress(pause_seconds: float = _PAUSE_SECONDS) -> StepProgress:
    """Return the progress of a function in a job's process, which is printed at intervals.

    Args:
        pause_seconds: Minimum time between two lines.
    """

    def tell_far(event: RunEvent) -> None:
        if isinstance(event, StepProgressed):
            tell(ProgressNote(event.done, event.total))

    return StepProgress("", "", tell_far, pause_seconds)


def tell(note: Note) -> None:
    """Print a note to the real stdout, wherever the function has redirected `sys.stdout`. If nobody reads it, it is
    dropped.
    """
    flush_streams()
    with contextlib.suppress(OSError):
        # One write, so that no other text comes in between; a line of its own.
        os.write(1, text_of_note(note).encode())


def flush_streams() -> None:
    """Flush this process's buffered Python output, as far as possible."""
    for stream in (sys.stdout, sys.stderr):
        # Closed, or replaced by something of the function's own.
        with contextlib.suppress(Exception):
            stream.flush()


def text_of_note(note: Note) -> str:
    """Return a note in its printed form."""
    return f"\n{MARK}{json.dumps(asdict(note))}\n"


def tell_use(since: float) -> None:
    """Print the resource use of this process since `time.process_time()` was `since`."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    cpu = time.process_time() - since + children.ru_utime + children.ru_stime
    tell(Use(round(cpu, 3), 1024 * max(own.ru_maxrss, children.ru_maxrss)))


def note_in(line: str) -> Note | None:
    """Return the note in a line; None for any other line."""
    if not line.startswith(MARK):
        return None
    try:
        fields = json.loads(line.removeprefix(MARK))
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    kind = next((kind for kind in _KINDS if fields.keys() == kind.__dataclass_fields__.keys()), None)
    if kind is None or not all(_fits(kind.__dataclass_fields__[name].type, value) for name, value in fields.items()):
        return None
    return kind(**fields)


def take_note(note: Note, progress: StepProgress) -> None:
    """Apply a note's progress, resource use or return value."""
    if isinstance(note, ProgressNote):
        progress.report(note.done, note.total)
    elif isinstance(note, Use):
        progress.add_use(Use(note.cpu_seconds, int(note.peak_bytes)))
    elif isinstance(note, ValueNote):
        progress.kept_under = note.kept_under


def _fits(kind: object, value: Any) -> bool:
    if kind in ("str", "bool"):
        return type(value).__name__ == kind
    return type(value) in (int, float) and math.isfinite(value) and value >= 0
