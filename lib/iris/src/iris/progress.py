"""Reports a task's progress, to detect stalled tasks (`iris job run --stall-timeout`)."""

import os
import signal
from typing import Final

_VARIABLE: Final = "IRIS_PROGRESS_FILE"
_registered_pid = 0


def report_progress() -> None:
    """Report that the task makes progress. Call this with each step; a call takes microseconds.

    Has no effect without a stall timeout or outside of a task, and never raises. After the first call, the process
    dumps its threads to stderr, and so to the log, before a stalled attempt is ended.
    """
    path = os.environ.get(_VARIABLE)
    if not path:
        return
    try:
        if _registered_pid != os.getpid():
            _register(path)
        os.utime(path)
    except (OSError, ValueError):
        return


def _register(path: str) -> None:
    global _registered_pid  # of this process alone: a fork registers by itself
    import faulthandler
    import sys

    number = signal.SIGRTMIN + 11
    stream = sys.stderr if sys.stderr is not None else sys.__stderr__
    try:
        descriptor = stream.fileno() if stream is not None else 2
    except (OSError, ValueError):
        descriptor = 2
    faulthandler.register(number, file=descriptor, all_threads=True)
    with open(path, "a") as file:
        print(os.getpid(), int(number), file=file)
    _registered_pid = os.getpid()
