"""Tells a task that it is preempted: see `iris.preemption`."""

import logging
import os
from typing import Final

from iris.worker.attempts.attempt import Attempt
from iris.worker.attempts.machine import Terminate
from iris.worker.attempts.tokens import write_private
from iris.worker.paths import WorkPaths

logger = logging.getLogger(__name__)

_LAST_WORDS_MS: Final = 5000
"""Time between SIGTERM and SIGKILL for a task that asks for notices; at most a fifth of its grace."""


def give_notice(paths: WorkPaths, attempt: Attempt, how: Terminate, deadline_s: float) -> int:
    """Write an attempt's notice; return after how many ms to send SIGTERM.

    A task that has called `iris.preemption` has most of its grace first: the call made the file. Other tasks know only
    the signal, which comes at once.

    Args:
        paths: The files of its room.
        attempt: The attempt.
        how: Its grace, and why.
        deadline_s: When SIGKILL comes (Unix s).
    """
    path = paths.notice(attempt.attempt_id, bool(attempt.request.launch.runtime.image))
    try:
        # A second notice finds the first one, which is not empty.
        asks = attempt.stop_timer is not None or (os.path.lexists(path) and not os.lstat(path).st_size)
        write_private(path, f"{how.notice} {deadline_s:.3f}\n".encode(), paths.uid)
    except OSError as error:
        logger.warning("%s has no notice of its preemption: %s", attempt.attempt_id, error)
        return 0
    return how.grace_ms - min(_LAST_WORDS_MS, how.grace_ms // 5) if asks else 0
