"""The run's own part of a step's log in its output path: `.log`, and `.error` if an attempt fails.

Both grow: each attempt begins with a line with its number, time and host. A step that writes nothing and does not fail
has neither file. On local disks each line is in the file immediately, even if this process dies. Object stores cannot
append, so the file is written as a whole at the attempt's end, and before that at intervals that double. Nothing here
may fail a step. Do not log while holding a lock: log records of steps come here, too.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import threading
import time
from collections.abc import Iterable
from typing import Protocol

from marin.execution.log.files import LogFile, open_log_file
from marin.execution.log.sections import failed_line, heading
from marin.execution.log.writer import PartWriter
from marin.execution.report.events import StepTimedOut, describe_error
from marin.full_disk import full_disk
from marin.output_files import follows_line
from rigging.filesystem.location import path_in

logger = logging.getLogger(__name__)


class Holder(Protocol):
    """The lease under which a log is written."""

    @property
    def held(self) -> bool:
        """Whether written lines still belong to the current attempt."""
        ...


class StepLog:
    """The log of one attempt. Several threads may use it.

    Args:
        output_path: The step's output path.
        attempt: The attempt's number in its run, from 1.
        lease: Its lease. Without it nothing is written.
        is_fresh: Whether there was no earlier attempt, and so no file to append to.

    Attributes:
        is_kept_by_job: Whether the step's job process writes its own part, with a heading.
        has_error: Whether the step's job has written its error.
        follows_unfinished: Whether a run may have been killed within the previous attempt.
    """

    def __init__(self, output_path: str, attempt: int, lease: Holder, *, is_fresh: bool = False) -> None:
        self._output_path = output_path
        self.attempt = attempt
        self.is_fresh = is_fresh
        self._lease = lease
        self._guard = threading.Lock()
        self._part = PartWriter(self._open, functools.partial(heading, attempt, time.time()))
        self.is_kept_by_job = False
        self.has_error = False
        self.follows_unfinished = False
        self._is_over = False

    def renew_lock(self) -> None:
        """Replace the lock after a fork: a thread that does not exist in the child may have held it."""
        self._guard = threading.Lock()

    def add(self, lines: Iterable[str]) -> None:
        """Add whole lines without their newlines."""
        told = list(lines)
        with self._guard:
            if told and not self._is_over and self._lease.held:
                self._part.add(told, has_opening=not self.is_kept_by_job)

    def end(self, error: BaseException | None = None, next_delay: float | None = None) -> None:
        """Complete the files at the end of the attempt, while its lease is held. Later lines are dropped.

        Args:
            error: The attempt's error.
            next_delay: Seconds until the next attempt, or None.
        """
        if self.has_error and not isinstance(error, StepTimedOut):
            error = None
        told = [] if error is None else [failed_line(error)]
        told += [] if next_delay is None else [follows_line(self.attempt + 1, next_delay)]
        if not (told or self._part.is_begun or self._part.trouble):  # most steps print nothing
            self._is_over = True
            return
        self.add(told)
        with self._guard:
            was_over, self._is_over = self._is_over, True
            if was_over:
                return
            self._part.close(error, keep=self._lease.held)
            trouble = self._part.trouble
        if trouble is not None:
            words = full_disk(trouble, self._output_path) or describe_error(trouble)
            logger.warning("the log of %s is incomplete: %s", self._output_path, words)

    def _open(self, name: str) -> LogFile:
        return open_log_file(path_in(self._output_path, name), self.is_fresh and not self.is_kept_by_job)


_current: contextvars.ContextVar[StepLog | None] = contextvars.ContextVar("marin_step_log", default=None)


def step_log() -> StepLog | None:
    """Return the log of the step that runs in this context; None outside of any step."""
    return _current.get()


def set_step_log(log: StepLog) -> None:
    """Make `step_log()` return `log` in this context."""
    _current.set(log)
