"""A run's part in the log of a step's job: lines that the job's processes do not write themselves.

The run writes lines from before a process took over its log, lines from after it closed its part, and all lines of a
job that cannot read its own output. A killed process's part is completed by a shell that it left behind, or here from
the cluster's log.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from marin.execution.log.completion import complete
from marin.execution.log.job_files import JobLogFiles, WritesUnderLease, take_parts
from marin.execution.log.lines import OutputLines, without_notes
from marin.execution.log.notes import LogEndNote, LogNote, Note
from marin.execution.log.sections import LOST, Section, is_closed, lines_of
from marin.execution.log.step_log import StepLog
from marin.execution.report.events import describe_error
from rigging.distributed_lock import LeaseLostError
from rigging.errors import JobFailed
from rigging.filesystem import local_path

if TYPE_CHECKING:
    from fray.client import JobHandle
    from marin.execution.lease.step_lease import StepLease

logger = logging.getLogger(__name__)

# A shell that completes a log starts an interpreter first.
_CLOSING_SECONDS: Final = 15.0
# The same, where the cluster keeps the output: it may have killed who completes the part.
_KEPT_SECONDS: Final = 1.0


class KeptLog:
    """The log of one attempt at a step that runs as a job.

    Args:
        log: The run's own part of the log.
        output_path: The step's output path.
        replicas: The number of replicas.
        closing_seconds: How long to wait for the parts of killed processes.
    """

    def __init__(
        self, log: StepLog, output_path: str, replicas: int, closing_seconds: float = _CLOSING_SECONDS
    ) -> None:
        self._log = log
        self._output_path = output_path
        self._replicas = replicas
        self._closing_seconds = closing_seconds
        self._open: dict[int | None, dict[str, LogNote]] = {}
        self._held: dict[int | None, list[str]] = {}
        self._heard: set[int | None] = set()

    def add(self, key: int | None, lines: Sequence[str]) -> None:
        """Add printed lines of a replica (None: of all), in log format."""
        if key not in self._heard:
            self._held.setdefault(key, []).extend(lines)
        elif not self._open.get(key):
            self._log.add(lines)

    def take(self, key: int | None, note: Note) -> None:
        """Handle a note from the output."""
        if isinstance(note, LogNote):
            self._heard.add(key)
            held = self._held.pop(key, [])
            if note.log:
                # What it had printed before is in its part, too.
                self._open.setdefault(key, {})[note.log] = note
                self._log.is_kept_by_job = True
            else:
                self._open.pop(key, None)
                self._log.add(held)
        elif isinstance(note, LogEndNote):
            self._open.get(key, {}).pop(note.log_end, None)
            self._log.has_error = self._log.has_error or note.failed

    def end(self, handle: JobHandle, lease: WritesUnderLease) -> None:
        """Complete the log after the job has ended. A log that cannot be completed causes a warning.

        Args:
            handle: The job.
            lease: The step's lease.

        Raises:
            LeaseLostError: The lease is lost.
        """
        for held in self._held.values():
            self._log.add(held)
        self._held.clear()
        try:
            for note in [note for notes in self._open.values() for note in notes.values()]:
                self._close(note, handle, lease)
            if self._replicas > 1 and local_path(self._output_path) is None:
                take_parts(self._output_path, lease)
        except LeaseLostError:
            raise
        # Storage libraries and clusters raise errors of many types.
        except Exception as error:
            logger.warning("the log of %s is incomplete: %s", self._output_path, describe_error(error))

    def _close(self, note: LogNote, handle: JobHandle, lease: WritesUnderLease) -> None:
        """Complete the part of a process that has not reported its end."""
        from fray.client import GivesAttemptOutputs

        section = Section(note.log, note.replica if self._replicas > 1 else None)
        files = JobLogFiles(self._output_path, section, False, lease)
        is_kept = isinstance(handle, GivesAttemptOutputs)
        seconds = 0.0 if not note.guarded else _KEPT_SECONDS if is_kept else self._closing_seconds
        log = files.look_until(files.read, lambda log: is_closed(log, section), seconds)
        if not is_closed(log, section):
            printed = (lines for _, heading, lines in _processes(handle) if heading == note.log)
            complete(files, next(printed, [*lines_of(log, section), LOST]))


def complete_former(name: str, lease: StepLease, replicas: int) -> None:
    """Complete the log of a step whose last run was killed, from the output of its jobs, even of killed ones.

    Args:
        name: The name of the step's jobs.
        lease: The step's lease.
        replicas: The number of replicas of a job.
    """
    from fray.client import FindsEndedJobs
    from fray.current_client import current_client

    client = current_client()
    if not isinstance(client, FindsEndedJobs):
        return
    try:
        for replica, heading, lines in _processes(client.ended_job(name)):
            if heading:
                section = Section(heading, replica if replicas > 1 else None)
                complete(JobLogFiles(lease.output_path, section, False, lease), lines)
    except LeaseLostError:
        raise
    # Storage libraries and clusters raise errors of many types.
    except Exception as error:
        logger.warning("the log of %s may lack the end of an earlier attempt: %s", lease.output_path, error)


def _processes(handle: object) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the replica, the heading of its part, and the lines of each process of a job, from its cluster's log."""
    from fray.client import GivesAttemptOutputs

    if not isinstance(handle, GivesAttemptOutputs):
        return
    for (replica, _), pieces in sorted(handle.attempt_outputs().items()):
        yield replica, *_heading_and_lines(pieces)


def _heading_and_lines(pieces: Sequence[tuple[int, bytes]]) -> tuple[str, list[str]]:
    notes: list[Note] = []
    reader = OutputLines(lambda _, note: notes.append(note))
    lines = reader.feed(pieces) + reader.end()
    return next((note.log for note in notes if isinstance(note, LogNote)), ""), lines


@contextlib.contextmanager
def log_kept(log: StepLog | None, handle: JobHandle, lease: StepLease, replicas: int) -> Iterator[KeptLog | None]:
    """Context manager: yield the log of a step while the run waits for its job. Complete the log at the end.

    Args:
        log: The run's own part of the log, or None.
        handle: The job.
        lease: The step's lease.
        replicas: The number of replicas of the job.
    """
    kept = None if log is None else KeptLog(log, lease.output_path, replicas)
    try:
        yield kept
    except JobFailed as error:
        # The end of a job's output may be in the text of its failure.
        error.args = tuple(without_notes(part) if isinstance(part, str) else part for part in error.args)
        raise
    finally:
        if kept is not None:
            kept.end(handle, lease)
