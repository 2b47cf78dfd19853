"""The log of a step in its output path: `.log`, and `.error` when an attempt fails.

Both grow: each attempt begins with a line that says which it is, when it began and where. A step that writes nothing,
and does not fail, has neither. On local disks each line is in the file as soon as it is written, whatever becomes of
this process. Object stores cannot append: there the file is written as a whole at the attempt's end, and before that at
intervals that double. Nothing here may fail a step, and nothing logs while a lock is held: log records of steps come
here themselves.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from marin.execution.report.error_text import own_traceback
from marin.execution.report.events import StepTimedOut, describe_error
from marin.execution.report.log_files import LocalFile, LogFile, UploadedFile
from marin.execution.report.log_headings import failed_line, heading
from marin.full_disk import full_disk
from marin.log_words import follows_line
from marin.output_files import ERROR_FILE, LOG_FILE
from rigging.filesystem import local_path
from rigging.filesystem.location import path_in
from rigging.redaction import redact_string
from rigging.text.printable import printable

logger = logging.getLogger(__name__)


class Holder(Protocol):
    """The lease under which a log is written."""

    @property
    def held(self) -> bool:
        """True while what is written belongs to the present attempt."""
        ...


class StepLog:
    """The log of one attempt; used from several threads.

    Args:
        output_path: The step's output path.
        attempt: The attempt's number in its run, from 1.
        lease: Its lease; without it nothing is written.
        is_fresh: There were no attempts before, so that there is nothing to add to.
        open_file: Opens a file; for tests.

    Attributes:
        is_kept_by_job: The process of the step's job writes its part, with a heading, itself.
        has_error: The step's job has written how it failed.
        follows_unfinished: A run may have been killed within the attempt before this one.
    """

    def __init__(
        self,
        output_path: str,
        attempt: int,
        lease: Holder,
        *,
        is_fresh: bool = False,
        open_file: Callable[[str, bool], LogFile] | None = None,
    ) -> None:
        self._output_path = output_path
        self.attempt = attempt
        self.is_fresh = is_fresh
        self._lease = lease
        self._open_file = open_file or open_log_file
        self._guard = threading.Lock()
        self._file: LogFile | None = None
        self._began = time.time()
        self.is_kept_by_job = False
        self.has_error = False
        self.follows_unfinished = False
        self._is_over = False
        self._trouble: Exception | None = None

    def renew_lock(self) -> None:
        """Replace the lock after a fork: a thread that does not exist in the child may have held it."""
        self._guard = threading.Lock()

    def add(self, lines: Iterable[str]) -> None:
        """Add whole lines, without their newlines."""
        text = "".join(f"{line}\n" for line in lines)
        with self._guard:
            if text and not self._is_over and self._trouble is None and self._lease.held:
                self._write(text)

    def end(self, error: BaseException | None = None, next_delay: float | None = None) -> None:
        """Complete the files at the end of the attempt, while its lease is held; later lines are left out.

        Args:
            error: What the attempt failed with.
            next_delay: Seconds until another attempt follows; None when none does.
        """
        if self.has_error and not isinstance(error, StepTimedOut):
            error = None
        told = [] if error is None else [failed_line(error)]
        told += [] if next_delay is None else [follows_line(self.attempt + 1, next_delay)]
        if not told and self._file is None and self._trouble is None:
            self._is_over = True
            return
        with self._guard:
            if self._is_over:
                return
            if told and self._trouble is None and self._lease.held:
                self._write("".join(f"{line}\n" for line in told))
            self._is_over = True
            try:
                if self._file is not None:
                    self._file.close(keep=self._lease.held)
                if error is not None and self._lease.held:
                    self._write_error(error)
            # Storage libraries raise errors of many types.
            except Exception as trouble:
                self._trouble = self._trouble or trouble
        if self._trouble is not None:
            logger.warning(
                "the log of %s is not whole: %s",
                self._output_path,
                full_disk(self._trouble, self._output_path) or describe_error(self._trouble),
            )

    @property
    def _is_new(self) -> bool:
        return self.is_fresh and not self.is_kept_by_job

    def _write(self, text: str) -> None:
        try:
            if self._file is None:
                self._file = self._open_file(path_in(self._output_path, LOG_FILE), self._is_new)
                text = text if self.is_kept_by_job else f"{heading(self.attempt, self._began)}\n{text}"
            self._file.write(text.encode("utf-8", "backslashreplace"))
        # As above; told at the end.
        except Exception as trouble:
            self._trouble = trouble

    def _write_error(self, error: BaseException) -> None:
        file = self._open_file(path_in(self._output_path, ERROR_FILE), self._is_new)
        told = f"{heading(self.attempt, self._began)}\n{printable(redact_string(own_traceback(error)))}\n"
        file.write(told.encode("utf-8", "backslashreplace"))
        file.close(keep=True)


def open_log_file(path: str, is_fresh: bool) -> LogFile:
    """Return the file to add to, on any storage."""
    local = local_path(path)
    return LocalFile(local) if local is not None else UploadedFile(path, is_fresh)


_current: contextvars.ContextVar[StepLog | None] = contextvars.ContextVar("marin_step_log", default=None)


def step_log() -> StepLog | None:
    """Return the log of the step that is running in this context; None outside of any step."""
    return _current.get()


def set_step_log(log: StepLog) -> None:
    """Make `step_log()` return `log` in this context."""
    _current.set(log)
