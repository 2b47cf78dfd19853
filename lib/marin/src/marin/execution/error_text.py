"""Errors for people: a step's failure by the frames of its own code, once; all frames with `-v`."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import sys
import threading
import traceback
from types import TracebackType
from typing import Final

import rigging
from rigging.printable import printable

logger = logging.getLogger(__name__)

_HERE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
# What lies between a run and a step's function, beside the executor itself.
_LIBRARIES: Final = ("fray", "iris")
_CARRIERS: Final = (
    os.path.dirname(os.path.abspath(rigging.__file__ or __file__)) + os.sep,
    os.path.dirname(os.path.abspath(concurrent.futures.__file__)) + os.sep,
    os.path.abspath(threading.__file__),
)


def log_failure(name: str, output_path: str, error: BaseException) -> None:
    """Log why a step failed: with the frames of its own code, or with all of them when debug messages are logged."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.error("step %s failed -> %s", name, output_path, exc_info=error)
    else:
        logger.error("step %s failed -> %s\n%s", name, output_path, own_traceback(error))


def own_traceback(error: BaseException) -> str:
    """The traceback of an error without the frames of the executor that led to the code which failed.

    What that code called is shown to its end. Errors that have no other frames than the executor's keep them.
    """
    told = traceback.TracebackException.from_exception(error)
    left_out = _leave_out(told)
    text = "".join(told.format()).rstrip("\n")
    return f"{text}\n({left_out} frames of the executor left out; -v shows them)" if left_out else text


def _leave_out(told: traceback.TracebackException | None) -> int:
    if told is None:
        return 0
    first = next((index for index, frame in enumerate(told.stack) if not _is_ours(frame.filename)), 0)
    del told.stack[:first]
    # Errors may lead back to each other; what is told of them never does.
    parts = [told.__cause__, told.__context__, *(told.exceptions or ())]
    return first + sum(map(_leave_out, parts))


def _is_ours(filename: str) -> bool:
    path = os.path.abspath(filename)
    if path.startswith((_HERE, *_CARRIERS)):
        return True
    loaded = (getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES)
    return any(file is not None and path.startswith(os.path.dirname(os.path.abspath(file)) + os.sep) for file in loaded)


def end_without_traceback(error: BaseException) -> None:
    """Let the process, if it ends by this error, say it in words: where it came from has been logged, or is no help."""
    before = sys.excepthook

    def tell(kind: type[BaseException], raised: BaseException, frames: TracebackType | None) -> None:
        if raised is error:
            print(printable(f"{kind.__qualname__}: {raised}"), file=sys.stderr)
        else:
            before(kind, raised, frames)

    sys.excepthook = tell
