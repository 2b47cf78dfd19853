"""Print the output of steps' jobs in the waiting run."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from marin.execution.log.kept_log import KeptLog
from marin.execution.log.lines import TextLines
from marin.execution.log.notes import take_note
from marin.execution.report.progress import step_progress

if TYPE_CHECKING:
    from fray.client import JobHandle
    from fray.output.growing_text import GrowingText

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 2.0
# Of jobs whose whole log is read at each look: in a thread each, where nobody else prints it, and else.
_WHOLE_PAUSE_SECONDS: Final = 1.0
_QUIET_PAUSE_SECONDS: Final = 10.0
# The longer looks take, the longer the pause.
_PAUSE_PER_ROUND: Final = 20.0
_END_SECONDS: Final = 30.0


class JobLines:
    """Split the output of a step's job into complete lines prefixed with the step's name.

    Args:
        step_name: The prefix of each line. With several replicas it includes the replica's number.
        replicas: The number of replicas.
        log: The step's log, which also receives the lines.
        is_shown_elsewhere: Whether another process prints the lines, so that `add` returns none.
    """

    def __init__(
        self, step_name: str, replicas: int, log: KeptLog | None = None, *, is_shown_elsewhere: bool = False
    ) -> None:
        self._log = log
        self._progress = step_progress()
        self._is_shown_elsewhere = is_shown_elsewhere
        self._name = step_name
        self._are_several = replicas > 1
        self._lines: dict[int | None, TextLines] = {}

    def add(self, new: Mapping[int | None, str], *, ended: bool = False) -> str:
        """Return the lines that the new text completes; with `ended`, also unfinished ones. Add them to the log."""
        shown: list[str] = []
        for replica in sorted({*new, *(self._lines if ended else ())}, key=lambda key: -1 if key is None else key):
            is_told_apart = self._are_several and replica is not None
            label, mark = (f"{self._name}/{replica}", f"[{replica}] ") if is_told_apart else (self._name, "")
            reader = self._lines.setdefault(replica, TextLines())
            for each in [*reader.feed(new.get(replica, "")), *(reader.end() if ended else ())]:
                if isinstance(each, str):
                    shown.append(f"[{label}] {each}\n")
                    if self._log is not None:
                        self._log.add(replica, [f"{mark}{each}"])
                else:
                    take_note(each, self._progress)
                    if self._log is not None:
                        self._log.take(replica, each)
        return "" if self._is_shown_elsewhere else "".join(shown)


@contextlib.contextmanager
def shown_output(
    handle: JobHandle, step_name: str, replicas: int, reader: LogReader | None = None, log: KeptLog | None = None
) -> Iterator[None]:
    """Context manager: log the output of a step's job, and print it unless the backend already does.

    Args:
        handle: The job.
        step_name: The step's name.
        replicas: The number of the job's replicas.
        reader: The thread that reads the output. Defaults to one for all jobs of the process that support incremental
            output.
        log: The step's log.
    """
    from fray.client import GivesNewOutput, GivesReplicaLogs

    is_shown_elsewhere = False
    if isinstance(handle, GivesNewOutput):
        read, reader = handle.new_output, reader or _log_reader
    elif isinstance(handle, GivesReplicaLogs):
        read, reader = NewOf(handle.replica_logs), reader or LogReader(_WHOLE_PAUSE_SECONDS)
    elif log is not None and hasattr(handle, "logs"):
        # A job within a job: the outer one's client prints it. The log is read for the log file alone.
        read, reader = NewOf(lambda: {None: handle.logs()}), reader or LogReader(_QUIET_PAUSE_SECONDS)
        is_shown_elsewhere = True
    else:
        yield
        return
    lines = JobLines(step_name, replicas, log, is_shown_elsewhere=is_shown_elsewhere)
    followed = JobLog(str(handle.job_id), read, lines)
    reader.add(followed)
    try:
        yield
    except BaseException:
        # The cluster may not answer any more; the error must not be held up for long.
        reader.remove(followed)
        last = threading.Thread(target=followed.show, kwargs={"ended": True}, name="marin-job-output", daemon=True)
        last.start()
        last.join(_END_SECONDS)
        raise
    reader.remove(followed)
    followed.show(ended=True)


class ReadsNew(Protocol):
    """A function that returns the output of each replica since the last call."""

    def __call__(self, *, ended: bool = False) -> Mapping[int | None, str]:
        """Return the new output by replica (see `fray.client.GivesNewOutput`)."""
        ...


class NewOf:
    """New output of a job whose backend only returns whole logs."""

    def __init__(self, read: Callable[[], Mapping[int | None, str]]) -> None:
        self._read = read
        self._texts: dict[int | None, GrowingText] = {}

    def __call__(self, *, ended: bool = False) -> Mapping[int | None, str]:
        from fray.output.growing_text import GrowingText

        logs = self._read()
        return {key: self._texts.setdefault(key, GrowingText()).take_new(logs[key], ended=ended) for key in logs}


class JobLog:
    """A job whose new output is printed at intervals."""

    def __init__(self, job_id: str, read: ReadsNew, lines: JobLines) -> None:
        self._job_id = job_id
        self._read = read
        self._lines = lines
        self._lock = threading.Lock()
        self._is_over = False

    def show(self, *, ended: bool = False) -> None:
        """Print the output since the last call."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = ended
            try:
                text = self._lines.add(self._read(ended=ended), ended=ended)
                if text:
                    # One write, so that no other text comes in between.
                    sys.stdout.write(text)
                    sys.stdout.flush()
            # Output that cannot be shown must not fail the step.
            except Exception as error:
                self._is_over = True
                logger.warning("the output of job %s is no longer shown: %s", self._job_id, error)


class LogReader:
    """A single thread that prints the output of all jobs in turn, because a run may have thousands of jobs. It ends
    with the last job.

    Args:
        pause_seconds: Minimum pause between two rounds.
    """

    def __init__(self, pause_seconds: float) -> None:
        self._pause = pause_seconds
        self._changed = threading.Condition()
        self._followed: dict[JobLog, None] = {}
        self._is_running = False

    def add(self, followed: JobLog) -> None:
        """Start printing the job's output."""
        with self._changed:
            self._followed[followed] = None
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, name="marin-job-output", daemon=True).start()

    def remove(self, followed: JobLog) -> None:
        """Stop printing the job's output."""
        with self._changed:
            self._followed.pop(followed, None)
            if not self._followed:
                self._changed.notify()

    def _run(self) -> None:
        pause = self._pause
        while True:
            with self._changed:
                # Most jobs are short, and are printed at their end without a look before.
                is_over = self._changed.wait_for(lambda: not self._followed, pause)
                self._is_running = not is_over
                now = list(self._followed)
            if is_over:
                return
            began = time.monotonic()
            for followed in now:
                if followed in self._followed:
                    followed.show()
            pause = max(self._pause, _PAUSE_PER_ROUND * (time.monotonic() - began))


_log_reader = LogReader(_PAUSE_SECONDS)
