"""Output of steps' jobs, printed by the run that waits for them."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from marin.execution.log.kept_log import KeptLog
from marin.execution.log.lines import TextLines
from marin.execution.log.notes import take_note
from marin.execution.report.progress import step_progress

if TYPE_CHECKING:
    from fray.client import GivesNewOutput, JobHandle
    from fray.output.growing_text import GrowingText

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.25
_LAST_PAUSE_SECONDS: Final = 2.0
_QUIET_PAUSE_SECONDS: Final = 10.0
# Each look reads the whole log: the longer that takes, the longer the pause.
_PAUSE_PER_LOOK: Final = 4.0
_PAUSE_PER_ROUND: Final = 20.0
_END_SECONDS: Final = 30.0


class JobLines:
    """Splits the output of a step's job into complete lines, each with the step's name.

    Args:
        step_name: Stands at the start of each line, with the replica's number when there are several replicas.
        replicas: The number of replicas.
        log: The step's log, which is told of the lines, too.
        is_shown_elsewhere: Whether another process prints them, so that none are returned.
    """

    def __init__(
        self, step_name: str, replicas: int, log: KeptLog | None = None, *, is_shown_elsewhere: bool = False
    ) -> None:
        self._log = log
        self._progress = step_progress()
        self._is_shown_elsewhere = is_shown_elsewhere
        self._name = step_name
        self._are_several = replicas > 1
        self._texts: dict[int | None, GrowingText] = {}
        self._lines: dict[int | None, TextLines] = {}

    def take_new(self, logs: Mapping[int | None, str], *, ended: bool = False) -> str:
        """Return the complete lines of `logs` that were not returned before; with `ended` also unfinished ones."""
        from fray.output.growing_text import GrowingText

        new = {key: self._texts.setdefault(key, GrowingText()).take_new(logs[key], ended=ended) for key in logs}
        return self.add(new, ended=ended)

    def add(self, new: Mapping[int | None, str], *, ended: bool = False) -> str:
        """Return the lines that the new text completes; with `ended` also unfinished ones. The log is told of them."""
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
    """Context manager: print the output of a step's job, if its backend does not print it already, and log it.

    Args:
        handle: The job.
        step_name: The step's name.
        replicas: The number of the job's replicas.
        reader: The thread that reads the output; one for all jobs of the process by default.
        log: The step's log.
    """
    from fray.client import GivesNewOutput, GivesReplicaLogs

    if isinstance(handle, GivesNewOutput):
        followed = JobLog(handle, JobLines(step_name, replicas, log))
        reader = reader or _log_reader
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
        return
    read = handle.replica_logs if isinstance(handle, GivesReplicaLogs) else None
    pause = _FIRST_PAUSE_SECONDS
    if read is None:
        if log is None or not hasattr(handle, "logs"):
            yield
            return
        # A job within a job: the outer one's client prints it. The log is read for the log file alone.
        read, pause = (lambda: {None: handle.logs()}), _QUIET_PAUSE_SECONDS
    lines = JobLines(step_name, replicas, log, is_shown_elsewhere=pause == _QUIET_PAUSE_SECONDS)
    ended = threading.Event()
    thread = threading.Thread(
        target=_follow, args=(handle, read, lines, ended, pause), name="marin-job-output", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_SECONDS)


class JobLog:
    """A job whose new output is printed at intervals."""

    def __init__(self, handle: GivesNewOutput, lines: JobLines) -> None:
        self._handle = handle
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
                _write(self._lines.add(self._handle.new_output(ended=ended), ended=ended))
            except Exception as error:
                self._is_over = True
                logger.warning("the output of job %s is shown no further: %s", _job_id(self._handle), error)


class LogReader:
    """One thread that prints the output of all jobs in turn: a run may have thousands. It ends when there are none.

    Args:
        pause_seconds: The least pause between two rounds.
    """

    def __init__(self, pause_seconds: float) -> None:
        self._pause = pause_seconds
        self._lock = threading.Lock()
        self._followed: dict[JobLog, None] = {}
        self._is_running = False

    def add(self, followed: JobLog) -> None:
        """Print the job's output from now on."""
        with self._lock:
            self._followed[followed] = None
            if self._is_running:
                return
            self._is_running = True
        threading.Thread(target=self._run, name="marin-job-output", daemon=True).start()

    def remove(self, followed: JobLog) -> None:
        """Stop printing the job's output."""
        with self._lock:
            self._followed.pop(followed, None)

    def _run(self) -> None:
        spent = 0.0
        while True:
            # Most jobs are short, and are printed at their end without a look before.
            time.sleep(max(self._pause, _PAUSE_PER_ROUND * spent))
            with self._lock:
                now = list(self._followed)
                self._is_running = bool(now)
            if not now:
                return
            began = time.monotonic()
            for followed in now:
                if followed in self._followed:
                    followed.show()
            spent = time.monotonic() - began


_log_reader = LogReader(_LAST_PAUSE_SECONDS)


def _job_id(handle: object) -> str:
    return str(getattr(handle, "job_id", "?"))


def _write(text: str) -> None:
    if text:
        # One write, so that no other text comes in between.
        sys.stdout.write(text)
        sys.stdout.flush()


def _follow(
    handle: JobHandle,
    read: Callable[[], Mapping[int | None, str]],
    lines: JobLines,
    ended: threading.Event,
    first_pause: float,
) -> None:
    pause = first_pause
    try:
        while True:
            is_last = ended.wait(pause)
            began = time.monotonic()
            text = lines.take_new(read(), ended=is_last)
            _write(text)
            if is_last:
                return
            pause = first_pause if text else min(1.5 * pause, max(first_pause, _LAST_PAUSE_SECONDS))
            pause = max(pause, _PAUSE_PER_LOOK * (time.monotonic() - began))
    except Exception as error:
        # Output that cannot be shown must not fail the step.
        logger.warning("the output of job %s is shown no further: %s", handle.job_id, error)
