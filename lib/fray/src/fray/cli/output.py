"""Showing a job's log while it grows."""

from typing import TextIO

from fray.client import JobHandle
from fray.output.growing_text import SKIPPED, GrowingText

__all__ = ["SKIPPED", "LogFollower"]


class LogFollower:
    """Writes what a job has logged since the last look.

    Args:
        job: Whose log.
        to: Where it goes.
    """

    def __init__(self, job: JobHandle, to: TextIO) -> None:
        self._job = job
        self._to = to
        self._log = GrowingText()

    def show(self, *, ended: bool = False) -> None:
        """Write what is new; a character of which only a part was logged waits for its rest until the job `ended`."""
        self._to.write(self._log.take_new(self._job.logs(), ended=ended))
        self._to.flush()
