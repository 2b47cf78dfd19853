"""The part of a step's log that its job's process writes while it runs its function.

A thread reads the output of the process and its children from the job's backend, and adds the lines to the log. The
process's output is not redirected, so the backend's own log is unaffected. If the output outlives the process
(`OwnOutput.descriptor`), a shell waits for the process's end and completes the log after a kill. Otherwise the run
completes it from its cluster's log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from marin.execution.log.completion import CLOSING_SECONDS, settle_former, words_for
from marin.execution.log.job_files import JobLogFiles
from marin.execution.log.lines import OutputLines
from marin.execution.log.notes import HereNote, LogEndNote, LogNote, Note, flush_streams, tell, text_of_note
from marin.execution.log.sections import Section, failed_line, heading, heading_in_job
from marin.execution.log.writer import PartWriter
from marin.execution.report.events import describe_error
from marin.output_files import LOG_FILE
from rigging.filesystem import local_path

if TYPE_CHECKING:
    from fray.output.own_output import OwnOutput
    from marin.execution.lease.fencing import LeaseToken
    from marin.execution.log.files import LogFile

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.05
_QUIET_PAUSE_SECONDS: Final = 0.25
# What was printed last may still be on its way to where it is kept.
_ARRIVAL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class LogTask:
    """A run's instructions to a job about its step's log.

    Attributes:
        attempt: The attempt's number in its run, from 1.
        replicas: The number of replicas of the job.
        is_fresh: Whether there was no earlier attempt.
    """

    attempt: int
    replicas: int = 1
    is_fresh: bool = False


@contextlib.contextmanager
def log_kept_here(task: LogTask | None, output_path: str, token: LeaseToken | None, replica: int) -> Iterator[None]:
    """Context manager, in a job's process: write the log of the block, if this process can read its own output.

    Args:
        task: The run's instructions; None for no log.
        output_path: The step's output path.
        token: The lease of the run.
        replica: This process's replica.
    """
    if task is None:
        yield
        return
    from fray.output.own_output import own_output

    source = own_output()
    if source is None:
        tell(LogNote("", replica, False))
        yield
        return
    section = Section(heading_in_job(heading(task.attempt, time.time())), replica if task.replicas > 1 else None)
    own = OwnPart(source, JobLogFiles(output_path, section, task.is_fresh, token), replica)
    own.begin()
    try:
        yield
    except BaseException as error:
        own.end(error)
        raise
    own.end(None)


class OwnPart:
    """The part of one process.

    Args:
        source: The process's output.
        files: The files for the part.
        replica: The process's replica.
        pause_seconds: The polling interval while there is new output.
        former_seconds: Maximum time to wait for the parts of earlier processes, in seconds.
    """

    def __init__(
        self,
        source: OwnOutput,
        files: JobLogFiles,
        replica: int,
        pause_seconds: float = _PAUSE_SECONDS,
        former_seconds: float = CLOSING_SECONDS,
    ) -> None:
        self._source = source
        self._files = files
        self._replica = replica
        self._pause = pause_seconds
        self._former_seconds = former_seconds
        self._lines = OutputLines(self._note)
        self._part = PartWriter(self._open, lambda: files.section.opening)
        self._trouble: Exception | None = None  # of reading
        self._arrived: set[int] = set()
        self._is_over = threading.Event()
        self._guard: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._follow, name="marin-step-log", daemon=True)

    def begin(self) -> None:
        """Start writing, and notify the run."""
        if self._source.descriptor is not None:
            self._guard = _start_guard(self._source.descriptor, self._files)
        if local_path(self._files.output_path) is not None:
            # Before there is anything to write: a process that comes after this one has been killed sees that there
            # was one, and lets its part be completed first.
            self._part.add([])
        tell(LogNote(self._files.section.heading, self._replica, self._guard is not None))
        self._thread.start()

    def end(self, error: BaseException | None) -> None:
        """Write all output so far, and the outcome.

        Args:
            error: The function's error.
        """
        flush_streams()
        self._is_over.set()
        self._thread.join()
        self._await_arrival()
        section, part = self._files.section, self._part
        self._add(self._lines.end() + ([] if error is None else [failed_line(error)]))
        # A part that is not closed is completed by the run, from its cluster's log.
        if part.is_begun and self._trouble is None:
            part.add([section.closing])
        part.close(error)
        self._source.close()
        self._let_guard_go()
        trouble = self._trouble or part.trouble
        if trouble is None:
            tell(LogEndNote(section.heading, error is not None))
        else:
            # Its cluster has let go of what was not read yet, say, or the storage is full.
            logger.warning("the log of %s is left to its run: %s", self._files.output_path, describe_error(trouble))

    def _follow(self) -> None:
        pause = self._pause
        while not self._is_over.wait(pause):
            pause = self._pause if self._look() else min(1.5 * pause, _QUIET_PAUSE_SECONDS)

    def _look(self) -> bool:
        try:
            lines = self._lines.feed(self._source.read())
        # Of another release's files, say: what is there stays, and nothing comes after a gap.
        except Exception as trouble:
            self._trouble = self._trouble or trouble
            return False
        self._add(lines)
        return bool(lines)

    def _add(self, lines: list[str]) -> None:
        """Write lines of the part. It begins with the first of them, after the parts of earlier processes are
        complete.
        """
        if lines and self._trouble is None:
            self._part.add(self._files.section.tagged(lines))

    def _open(self, name: str) -> LogFile:
        if name == LOG_FILE:
            settle_former(self._files, self._former_seconds if self._guard is not None else 0.0)
        return self._files.open(name)

    def _await_arrival(self) -> None:
        """Read up to the current end."""
        self._look()
        if self._source.descriptor is not None or self._trouble is not None:
            return
        # The output goes through pipes, each at its own pace.
        mark = text_of_note(HereNote(self._files.section.heading)).encode()
        for descriptor in (1, 2):
            with contextlib.suppress(OSError):
                os.write(descriptor, mark)
        deadline = time.monotonic() + _ARRIVAL_SECONDS
        while len(self._arrived) < 2 and self._trouble is None and time.monotonic() < deadline:
            if not self._look():
                time.sleep(0.01)

    def _note(self, stream: int, note: Note) -> None:
        if isinstance(note, HereNote) and note.here == self._files.section.heading:
            self._arrived.add(stream)

    def _let_guard_go(self) -> None:
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.write(b"done\n")
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()


def _start_guard(descriptor: int, files: JobLogFiles) -> subprocess.Popen[bytes] | None:
    """Start a shell that runs `completion` if this process is killed; return None if there is no shell.

    It has its own session, because a kill of this process usually includes its group.
    """
    # Packages may be found by what the job's process has added to its path.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    words = [sys.executable, "-m", "marin.execution.log.completion", words_for(descriptor, files)]
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _ || exec "$@"', "marin-step-log", *words],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
            start_new_session=True,
            env=environment,
            cwd="/",
        )
    except OSError as error:
        logger.warning("the log of %s stays incomplete if this process is killed: %s", files.output_path, error)
        return None
