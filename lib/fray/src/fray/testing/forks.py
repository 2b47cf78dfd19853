"""Forked children in tests."""

import os
import signal
import time


def exit_code_of(child: int, seconds: float = 20.0) -> int:
    """Wait for a forked child and return its exit code, or the negative signal number.

    Raises:
        AssertionError: The child did not end in time; it is killed.
    """
    deadline = time.monotonic() + seconds
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the forked child hangs")
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(ended[1])
