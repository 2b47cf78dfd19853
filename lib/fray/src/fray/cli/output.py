"""Show a job's log while it grows."""

from typing import TextIO

from fray.client import JobHandle
from fray.output.growing_text import SKIPPED, GrowingText

__all__ = ["SKIPPED", "LogFollower"]


class LogFollower:
    """Write what a job has logged since the last call.

    Args:
        job: The job.
        to: The output stream.
    """

    def __init__(self, job: JobHandle, to: TextIO) -> None:
        self._job = job
        self._to = to
        self._log = GrowingText()

    def show(self, *, ended: bool = False) -> None:
        """Write new text. An incomplete character waits for its remaining bytes until the job has `ended`."""
        self._to.write(self._log.take_new(self._job.logs(), ended=ended))
        self._to.flush()
