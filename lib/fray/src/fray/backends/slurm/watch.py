"""Watch the jobs of a client for their ends: by their files, and rarely by asking Slurm."""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from fray.backends.slurm import commands
from fray.backends.slurm.commands import SlurmState
from fray.backends.slurm.folder import End, Group
from fray.types import JobStatus
from rigging.errors import MarinError

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.05
_SHARE: Final = 10
_ASK_SECONDS: Final = 2.0
_LONGEST_ASK_SECONDS: Final = 15.0
_HURRY_SECONDS: Final = 0.3
_LONGEST_JOIN_SECONDS: Final = 2.0
_STARTED: Final = ("COMPLETED", "FAILED", "PENDING")
"""States of ended jobs that were started: pending ones are held after a failed launch."""


class Watched(Protocol):
    """A job to watch."""

    @property
    def group(self) -> Group: ...

    @property
    def index(self) -> int: ...

    @property
    def task(self) -> str:
        """Slurm's id of the job or array task."""
        ...

    def tell(self, state: SlurmState) -> None:
        """Note a state in which the job has not ended."""
        ...

    def finish(self, end: End | None) -> None:
        """Notify waiters of the end; None if the client was shut down first."""
        ...


class JobWatcher:
    """A thread that looks at the files of jobs while there are any, and one that asks Slurm, which may take long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, int], list[Watched]] = {}
        self._thread: threading.Thread | None = None
        self._asking: threading.Thread | None = None
        self._problems: dict[str, str] = {}
        self._wake = threading.Event()
        self._closed = False
        self._ask_at = 0.0
        self._ask_pause = _ASK_SECONDS

    def add(self, jobs: Iterable[Watched]) -> None:
        """Watch jobs until they end."""
        with self._lock:
            for job in jobs:
                self._jobs.setdefault((job.group.path.name, job.index), []).append(job)
            self._hurry(_ASK_SECONDS)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="fray-slurm-watch", daemon=True)
                self._thread.start()

    def hurry(self) -> None:
        """Ask Slurm soon: a job was cancelled."""
        with self._lock:
            self._hurry(_HURRY_SECONDS)

    def close(self) -> None:
        """Stop watching, and release waiters."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wake.set()
        for each, seconds in ((thread, None), (self._asking, _LONGEST_JOIN_SECONDS)):
            if each is not None and each is not threading.current_thread():
                each.join(seconds)

    def _hurry(self, pause: float) -> None:
        self._ask_pause = min(self._ask_pause, pause)
        self._ask_at = min(self._ask_at, time.monotonic() + pause)

    def _work(self) -> None:
        self._ask_at = time.monotonic() + self._ask_pause
        pause = _LOOK_SECONDS
        while True:
            self._wake.wait(pause)
            with self._lock:
                if self._closed or not self._jobs:
                    left = [job for jobs in self._jobs.values() for job in jobs]
                    self._jobs.clear()
                    self._thread = None
                    break
                jobs = [job for jobs in self._jobs.values() for job in jobs]
                due = time.monotonic() >= self._ask_at and not (self._asking and self._asking.is_alive())
                if due:
                    self._asking = threading.Thread(
                        target=self._try, args=("ask for", self._ask), name="fray-slurm-ask", daemon=True
                    )
                    self._asking.start()
            began = time.monotonic()
            looked = self._try("look at", functools.partial(self._look, jobs))
            pause = max(_LOOK_SECONDS, _SHARE * (time.monotonic() - began)) if looked else _ASK_SECONDS
        for job in left:
            job.finish(None)

    def _try(self, what: str, step: Callable[[], None]) -> bool:
        """Take a step. A problem is told once: the shared folder or Slurm may come back, and waiters depend on it."""
        try:
            step()
        except Exception as error:
            if self._problems.get(what) != str(error):
                self._problems[what] = str(error)
                unexpected = not isinstance(error, (OSError, MarinError))
                logger.warning("cannot %s jobs on Slurm, trying again: %s", what, error, exc_info=unexpected)
            return False
        self._problems.pop(what, None)
        return True

    def _look(self, jobs: list[Watched]) -> None:
        ended = {group: group.ended() for group in {job.group for job in jobs}}
        for job in jobs:
            if job.index in ended[job.group]:
                self._finish(job.group, job.index, job.group.end(job.index))

    def _ask(self) -> None:
        with self._lock:
            handles = [list(jobs) for jobs in self._jobs.values()]
            self._ask_pause = min(1.5 * self._ask_pause, _LONGEST_ASK_SECONDS)
            self._ask_at = time.monotonic() + self._ask_pause
        if not handles:
            return
        states = commands.states({job.task: job.group.comment for job, *_ in handles})
        for job, *others in handles:
            state = states[job.task]
            if state.ended:
                self._finish(job.group, job.index, settle(job.group, job.index, job.task, state))
            else:
                for each in (job, *others):
                    each.tell(state)

    def _finish(self, group: Group, index: int, end: End | None) -> None:
        if end is None:
            return
        with self._lock:
            jobs = self._jobs.pop((group.path.name, index), [])
        for job in jobs:
            job.finish(end)


def settle(group: Group, index: int, task: str, state: SlurmState) -> End:
    """Store and return the end of a job that Slurm will not start again. An end that its runner stored comes first."""
    log = group.slurm_log(index)
    if state.state in _STARTED and not log and not group.runs(index):
        log = f"(it is empty: if the node does not see {group.path}, choose a dir that all nodes share)"
    end = judge(task, state, commands.describe(task) if state.state else "", log)
    if state.state == "PENDING":
        commands.cancel([task])  # held after a failed launch
    try:
        return group.set_end(index, end)
    except OSError as error:  # a full disk: whoever asks next is told the same by Slurm
        logger.warning("cannot store the end of job %s: %s", task, error)
        return group.end(index) or end


def judge(task: str, state: SlurmState, described: str, log: str) -> End:
    """Return the end of a job whose runner stored none, from what Slurm says.

    Args:
        task: Slurm's id of the job.
        state: Its last state.
        described: `commands.describe` of it.
        log: What Slurm wrote into the job's own log.
    """
    if state.state == "CANCELLED":
        return End(JobStatus.STOPPED, f"Slurm cancelled job {task}: {described}")
    if not state.state:
        reason = f"lost: Slurm no longer knows job {task}, and the job stored no result"
    else:
        reason = f"lost: Slurm ended job {task}: {described}"
    if log:
        reason += f"; its log ends:\n{log}"
    return End(JobStatus.FAILED, reason, preempted=state.state == "PREEMPTED")
