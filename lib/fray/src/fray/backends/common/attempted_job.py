"""The handle of a job whose backend starts, stops and observes attempts. `job_life` decides what happens next."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from fray.backends.common.job_life import (
    AttemptEnd,
    AttemptStatus,
    Event,
    Instruction,
    Job,
    Review,
    StartAttempt,
    StopAttempt,
    TellRetry,
    advance,
    new_job,
)
from fray.protocols import JobHandle
from fray.types import JobRequest, JobStatus
from rigging.errors import DeadlineExceeded, InvalidRequest
from rigging.process.latch import Latch

logger = logging.getLogger(__name__)


class AttemptedJob(ABC):
    """A job and its handle.

    Args:
        job_id: Unique among the client's jobs.
        request: The job to run.
        interruptible: Whether running code can be stopped (see `JobRules`).
        review: Called under the lock with an attempt's number, to find out how a failed attempt ended (see `Review`);
            None if the replicas' own results decide.

    Raises:
        InvalidRequest: The request sets `max_task_failures`, but attempts include all replicas.
    """

    def __init__(
        self, job_id: str, request: JobRequest, interruptible: bool, review: Callable[[int], object] | None = None
    ) -> None:
        if request.max_task_failures:
            raise InvalidRequest(
                f"job {request.name!r}: max_task_failures is {request.max_task_failures}, but here all replicas "
                "of a job fail with the first one; leave it at 0, or submit to Iris"
            )
        self.request = request
        self._job_id = job_id
        self._life = new_job(
            request.replica_count,
            request.max_retries_failure,
            request.max_retries_preemption,
            interruptible,
            reviewed=review is not None,
        )
        self._review = review
        self._lock = threading.RLock()
        self._done = Latch()
        self._callbacks: list[Callable[[JobHandle], object]] = []
        self._returned: dict[int, Callable[[], Any]] = {}

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

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        if not self._done.is_open():
            self._check_process()
            if not self._await_end(timeout):
                raise DeadlineExceeded(f"job {self.request.name!r} is {self._life.status} after waiting {timeout} s")
        if raise_on_failure:
            self._raise_failure()
        return self._life.status

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job's end and return the callable's value (see `JobHandle.result`)."""
        program = self.request.entrypoint.binary_entrypoint
        refuse_program(None if program is None else program.command, f"job {self.request.name!r}")
        self.wait(timeout, raise_on_failure=False)
        own = self._own_exception()
        if own is not None:
            raise own
        self._raise_failure()
        values = [
            load() if (load := self._returned.get(index)) else None for index in range(self.request.replica_count)
        ]
        return values if len(values) > 1 else values[0]

    @abstractmethod
    def terminate(self) -> None: ...

    @abstractmethod
    def logs(self) -> str: ...

    @abstractmethod
    def _check_process(self) -> None:
        """Raise Conflict in a fork, where a lock may be held forever."""

    @abstractmethod
    def _await_end(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds for `_done` and return whether the job has ended."""

    @abstractmethod
    def _raise_failure(self) -> None:
        """Raise the error of an ended job that did not succeed."""

    def _own_exception(self) -> BaseException | None:
        """Return the callable's own exception, if `_raise_failure` raises one that wraps it."""
        return None

    def _keep_returned(self, attempt: int, replica: int, load: Callable[[], Any]) -> None:
        """Keep a loader for the value that a replica returned. Replicas without a loader returned None.

        All replicas of an attempt start together, so the next attempt replaces every loader.
        """
        with self._lock:
            if self._life.attempt == attempt and self._life.end is None:
                self._returned[replica] = load

    # These are called with the lock held, so they must not wait.

    @abstractmethod
    def _start_attempt(self, attempt: int) -> None:
        """Start all replicas."""

    @abstractmethod
    def _stop_attempt(self, grace: float | None) -> None:
        """Stop the running replicas within `seconds`; None means the backend's default."""

    @abstractmethod
    def _close(self, ended: Job) -> None:
        """Release the job's resources before its end becomes visible."""

    def _apply(self, event: Event) -> None:
        """Apply an event to the job. If it ends the job, notify waiters once."""
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

    def _carry_out(self, instruction: Instruction) -> None:
        if type(instruction) is StartAttempt:
            self._start_attempt(instruction.attempt)
        elif type(instruction) is StopAttempt:
            self._stop_attempt(instruction.grace)
        elif type(instruction) is Review:
            assert self._review is not None  # else the job's rules ask for none
            self._review(instruction.attempt)
        elif type(instruction) is TellRetry:
            self._tell_retry(instruction)

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


def refuse_program(program: str | None, what: str) -> None:
    """Raise InvalidRequest if someone asks for the result of a program.

    Args:
        program: The job's program; None if it runs a callable.
        what: Names the job in the error.
    """
    if program is not None:
        raise InvalidRequest(
            f"{what} runs the program {program!r}, which returns no value: wait() for it, and read its logs() "
            "or the files that it writes"
        )
