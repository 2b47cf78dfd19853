"""Readable errors: a step's failure once, with the frames of its own code (all frames with `-v`); short in
notebooks."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import linecache
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Final

import rigging
from marin.execution.report.events import FURTHER_LINES, StepTimedOut
from marin.execution.report.shell import interactive_shell
from rigging.errors import JobFailed, MarinError
from rigging.text.printable import printable

logger = logging.getLogger(__name__)

_EXECUTION: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Packages between a run and a step's function, besides the executor itself.
_LIBRARIES: Final = ("fray", "iris")
_CARRIERS: Final = (
    os.path.dirname(os.path.abspath(rigging.__file__ or __file__)) + os.sep,
    os.path.dirname(os.path.abspath(concurrent.futures.__file__)) + os.sep,
    os.path.abspath(threading.__file__),
)
# The same in another process, where packages may be installed elsewhere.
_OURS_ELSEWHERE: Final = re.compile(
    r"/(?:src|site-packages)/(?:fray|iris|rigging|ray|marin/execution)/|/concurrent/futures/[^/]+$|/threading\.py$"
)
_TRACEBACK: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+)')


def log_failure(name: str, output_path: str, error: BaseException) -> None:
    """Log why a step failed, with the frames of its own code; with all frames if debug messages are logged.

    Args:
        name: The step's name.
        output_path: Its output path.
        error: The exception.
    """
    if logger.isEnabledFor(logging.DEBUG):
        logger.error("step %s failed -> %s", name, output_path, exc_info=error)
    else:
        logger.error("step %s failed -> %s\n%s", name, output_path, own_traceback(error))


def full_traceback(error: BaseException) -> str:
    """Return an error's traceback with all frames, including those of its own process."""
    return "".join(traceback.format_exception(error)).rstrip("\n")


def own_traceback(error: BaseException) -> str:
    """Return an error's traceback without the executor's frames above the step's code.

    Frames below the step's code stay. A traceback with only the executor's frames keeps them. For an error in a step's
    job, return the traceback of the job's process, or the message of the job's failure.
    """
    there = _text_of_its_process(error)
    if there is not None:
        text, left_out = _without_ours(there)
        left_out += len(traceback.extract_tb(error.__traceback__))
        said = traceback.format_exception_only(error)[0].strip()
        text = _with_lines_of_cells(text.rstrip("\n") if said in text else f"{text.rstrip()}\n{said}")
    elif isinstance(error, (JobFailed, StepTimedOut)) and _was_only_waited_for(error):
        # The traceback of the job's process is a part of the message, in a form that depends on the backend.
        text, left_out = _without_ours("".join(traceback.format_exception_only(error)).rstrip("\n"))
        text = _with_lines_of_cells(text)
        left_out += len(traceback.extract_tb(error.__traceback__))
    else:
        told = traceback.TracebackException.from_exception(error)
        left_out = _leave_out(told)
        text = "".join(told.format()).rstrip("\n")
    return f"{text}\n({left_out} frames of the executor omitted; -v shows them)" if left_out else text


def stack_of_thread(native_id: int) -> str | None:
    """Return the stack of a thread without the executor's frames above the step's code; None if the thread is gone.

    Args:
        native_id: Its `threading.get_native_id()`.
    """
    ident = next((thread.ident for thread in threading.enumerate() if thread.native_id == native_id), None)
    frame = None if ident is None else sys._current_frames().get(ident)
    if frame is None:
        return None
    stack = traceback.extract_stack(frame)
    first = next((index for index, each in enumerate(stack) if not _is_ours(each.filename)), 0)
    return "".join(traceback.format_list(stack[first:])).rstrip("\n")


def _with_lines_of_cells(text: str) -> str:
    """Return another process's traceback with the source of notebook cells added, which only this process has."""
    lines = text.splitlines()
    filled: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        filled.append(line)
        frame = _FRAME.match(line)
        if frame is None or following.startswith("    ") or frame["file"] not in linecache.cache:
            continue
        source = "" if os.path.exists(frame["file"]) else linecache.getline(frame["file"], int(frame["line"])).strip()
        filled += [f"    {source}"] if source else []
    return "\n".join(filled)


def _text_of_its_process(error: BaseException) -> str | None:
    """Return the traceback text of another process's error; None for an error raised in this one."""
    for link in _causes(error):
        text = getattr(link, "text", None)
        if type(link).__name__ == "RemoteTraceback" and isinstance(text, str):  # fray's, which need not be there
            return text
        if not _has_our_frames_only(link):
            return None
    return None


def _was_only_waited_for(error: BaseException) -> bool:
    return all(map(_has_our_frames_only, _causes(error)))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _has_our_frames_only(error: BaseException) -> bool:
    return all(_is_ours(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def _without_ours(text: str) -> tuple[str, int]:
    """Return a traceback's text without the executor's leading frames, and the number of omitted frames."""
    kept: list[str] = []
    leading: list[str] | None = None  # frames of the traceback being read, up to the first that is not the executor's
    left_out = count = 0
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is not None and leading is None and kept and not kept[-1].startswith(" "):
            leading, count = [], 0  # the first frame, without a line above
        if line == _TRACEBACK:
            leading, count = [], 0
            kept.append(line)
        elif leading is None or (frame is None and line.startswith(" ")):
            (kept if leading is None else leading).append(line)
        elif frame is not None and _is_ours_elsewhere(frame["file"]):
            leading.append(line)
            count += 1
        else:
            if frame is None:  # only the executor's frames: they stay
                kept += leading
            else:
                left_out += count
            leading = None
            kept.append(line)
    return "\n".join(kept + (leading or [])), left_out


def _is_ours_elsewhere(filename: str) -> bool:
    return _is_ours(filename) or _OURS_ELSEWHERE.search(filename) is not None


def _leave_out(told: traceback.TracebackException | None) -> int:
    if told is None:
        return 0
    first = next((index for index, frame in enumerate(told.stack) if not _is_ours(frame.filename)), 0)
    del told.stack[:first]
    # Errors may refer to each other in a circle; their TracebackExceptions never do.
    parts = [told.__cause__, told.__context__, *(told.exceptions or ())]
    return first + sum(map(_leave_out, parts))


def _is_ours(filename: str) -> bool:
    path = os.path.abspath(filename)
    if path.startswith((_EXECUTION, *_CARRIERS)):
        return True
    loaded = (getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES)
    return any(file is not None and path.startswith(os.path.dirname(os.path.abspath(file)) + os.sep) for file in loaded)


def end_without_traceback(error: BaseException, words: str | None = None) -> None:
    """Print only the message if this error ends the process: the traceback was already logged, or does not help.

    This has no effect in a shell or notebook, which an error does not end.

    Args:
        error: The error.
        words: Replaces its message.
    """
    if interactive_shell() is not None:
        return
    before = sys.excepthook

    def tell(kind: type[BaseException], raised: BaseException, frames: TracebackType | None) -> None:
        if raised is error:
            print(printable(f"{kind.__qualname__}: {raised if words is None else words}"), file=sys.stderr)
        else:
            before(kind, raised, frames)

    sys.excepthook = tell


@contextlib.contextmanager
def short_errors() -> Iterator[None]:
    """Context manager: in IPython, show only the message of a run's errors and interrupts. No effect elsewhere.

    The log already has the failed step's own frames. All frames are shown if debug messages are logged (`-v`), and are
    available to `%debug` and to code that catches the error.
    """
    try:
        yield
    except (MarinError, KeyboardInterrupt) as error:
        if interactive_shell() is not None and not logger.isEnabledFor(logging.DEBUG):
            text = "KeyboardInterrupt: the run was interrupted; the next run makes the missing outputs"
            if isinstance(error, MarinError):
                # The report of failures, which stands above, has all lines of a job's error.
                lines = [line for line in str(error).splitlines() if not line.startswith(FURTHER_LINES)]
                text = printable(f"{type(error).__name__}: {chr(10).join(lines)}")
            # IPython asks an exception for its lines by this name. A function that can be pickled, as the error may be.
            error._render_traceback_ = functools.partial(str.splitlines, text)  # type: ignore[union-attr]
        raise
