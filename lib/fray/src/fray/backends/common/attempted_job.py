"""The handle of a job whose attempts its backend starts, stops and observes; `job_life` decides what is next."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from fray.backends.common.job_life import (
    AttemptEnd,
    AttemptStatus,
    Event,
    Instruction,
    Job,
    TellRetry,
    advance,
    new_job,
)
from fray.protocols import JobHandle
from fray.types import JobRequest, JobStatus
from rigging.latch import Latch

logger = logging.getLogger(__name__)


class AttemptedJob(ABC):
    """A job and its handle.

    Args:
        job_id: Unique among the client's jobs.
        request: The job to run.
        interruptible: Whether what runs can be stopped (see `JobRules`).
        reviewed: Whether failed attempts are looked at before they count (see `JobRules`).
    """

    def __init__(self, job_id: str, request: JobRequest, interruptible: bool, reviewed: bool) -> None:
        self.request = request
        self._job_id = job_id
        self._life = new_job(
            request.replica_count,
            request.max_retries_failure,
            request.max_retries_preemption,
            interruptible,
            reviewed,
        )
        self._lock = threading.RLock()
        self._done = Latch()
        self._callbacks: list[Callable[[JobHandle], object]] = []

    @property
    def job_id(self) -> str:
        return self._job_id

    @property
    def attempts(self) -> list[AttemptEnd]:
        """The ends of the attempts so far."""
        return list(self._life.attempts)

    def add_done_callback(self, callback: Callable[[JobHandle], object]) -> None:
        self._check_process()
        with self._lock:
            if self._life.end is None:
                self._callbacks.append(callback)
                return
        self._call_back(callback)

    @abstractmethod
    def status(self) -> JobStatus: ...

    @abstractmethod
    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus: ...

    @abstractmethod
    def terminate(self) -> None: ...

    @abstractmethod
    def logs(self) -> str: ...

    @abstractmethod
    def _check_process(self) -> None:
        """Raise Conflict in a fork, where a lock may be held for ever."""

    @abstractmethod
    def _carry_out(self, instruction: Instruction) -> None:
        """Start, stop or review an attempt, or tell of a retry. Called with the lock held, so it must not wait."""
        if type(instruction) is TellRetry:
            self._tell_retry(instruction)

    @abstractmethod
    def _close(self, ended: Job) -> None:
        """Let go of what the job held. Called with the lock held, before its end can be seen."""

    def _apply(self, event: Event) -> None:
        """Let an event happen to the job, and tell of its end, once, if that is one."""
        with self._lock:
            life, instructions = advance(self._life, event)
            ended = life.end is not None and self._life.end is None
            if ended:
                self._close(life)
            self._life = life
            if not ended:
                for instruction in instructions:
                    self._carry_out(instruction)
        if ended:
            self._done.open()
            for callback in self._callbacks:
                self._call_back(callback)
            self._callbacks.clear()

    def _tell_retry(self, retry: TellRetry) -> None:
        word = "was preempted" if retry.end.status is AttemptStatus.PREEMPTED else "failed"
        reason = retry.end.reason or retry.end.detail
        logger.warning("job %r %s, %d retries left: %s", self.request.name, word, retry.left, reason)

    def _call_back(self, callback: Callable[[JobHandle], object]) -> None:
        try:
            callback(self)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise
            # A user's callback must not end a thread that other jobs need, not even by SystemExit.
            logger.exception("job %r: a done callback failed", self.request.name)
