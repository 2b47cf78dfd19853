"""Reports a task's progress: that it is not stalled (`iris job run --stall-timeout`), and that it has a checkpoint."""

import logging
import os
import signal
from typing import Final

_VARIABLE: Final = "IRIS_PROGRESS_FILE"
_registered_pid = 0

logger = logging.getLogger(__name__)


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


def report_checkpoint() -> None:
    """Report that the task has written a checkpoint. Its time so far counts as productive, however it ends.

    `iris usage` shows it. One task speaks for its gang. Has no effect outside of a task. A failure is only logged.
    """
    if not os.environ.get("IRIS_JOB_ID"):
        return
    try:
        from iris.client import iris_ctx  # slow to import, and missing in a container that has only this file
        from iris.domain.endpoints import CHECKPOINT
        from rigging.errors import MarinError
    except ImportError as error:
        logger.warning("the checkpoint is not reported to the cluster: %s; pip install marin-iris in the image", error)
        return
    try:
        iris_ctx().registry.register(CHECKPOINT, "-", retry=False)
    except MarinError as error:
        logger.warning("the checkpoint is not reported to the cluster: %s", error)


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
