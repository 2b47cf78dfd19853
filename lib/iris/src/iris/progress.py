"""A task's progress reports, which reveal a hanging task (`iris job run --stall-timeout`)."""

import os
import signal
from typing import Final

_VARIABLE: Final = "IRIS_PROGRESS_FILE"
_registered_pid = 0


def report_progress() -> None:
    """Report that the task makes progress. Call it with each step, as often as you like (some microseconds).

    Without a stall timeout, and outside of a task, it does nothing. The first call of a process also arranges that its
    threads are written to stderr, and so to the log, before a hanging task is restarted. It never raises.
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
