"""Handles of jobs on Slurm."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from fray.backends.common.attempted_job import refuse_program
from fray.backends.slurm import commands
from fray.backends.slurm.commands import SlurmState
from fray.backends.slurm.folder import End, Group
from fray.errors import JobFailed
from fray.protocols import JobHandle
from fray.sending.remote_errors import RemoteTraceback, unpack_error
from fray.types import JobStatus
from rigging.errors import Conflict, DeadlineExceeded
from rigging.process.latch import Latch
from rigging.results import ResultUnavailable, unpack_result

logger = logging.getLogger(__name__)


class JobOwner(Protocol):
    """The part of a client that its jobs need."""

    def check_open(self, what: str) -> None:
        """Raise Conflict if the client was shut down or this process is a fork."""
        ...

    def hurry(self) -> None:
        """Ask Slurm soon."""
        ...


class SlurmJob:
    """A job on Slurm.

    Args:
        client: The client.
        group: The job's group.
        index: The job's index in it.
        slurm_id: Slurm's id of the group.
        name: The job's full name.
        count: The number of jobs in the group.
    """

    def __init__(self, client: JobOwner, group: Group, index: int, slurm_id: str, name: str, count: int) -> None:
        self.group = group
        self.index = index
        self.task = slurm_id if count == 1 else f"{slurm_id}_{index}"
        self._client = client
        self._name = name
        self._lock = threading.Lock()
        self._done = Latch()
        self._end: End | None = None
        self._pending_reason = ""
        self._callbacks: list[Callable[[JobHandle], object]] = []

    @property
    def job_id(self) -> str:
        return f"slurm-{self.task}-{self._name}"

    def status(self) -> JobStatus:
        self._check()
        end = self._end or self.group.end(self.index)
        if end is not None:
            return end.status
        return JobStatus.RUNNING if self.group.is_marked("begun", self.index) else JobStatus.PENDING

    def pending_reason(self) -> str:
        """Return Slurm's reason why the job is pending, as of the watcher's last look."""
        return self._pending_reason if self.status() is JobStatus.PENDING else ""

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Wait for the job's end (see `JobHandle.wait`)."""
        end = self._await_end(timeout)
        if raise_on_failure and end.status is not JobStatus.SUCCEEDED:
            raise self._failure(end) from self._own_error(end)
        return end.status

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job's end and return the callable's value (see `JobHandle.result`)."""
        self._check()
        spec = self.group.spec()
        refuse_program(spec.argv[0] if spec.argv is not None else None, f"job {self._name!r}")
        end = self._await_end(timeout)
        if end.status is not JobStatus.SUCCEEDED:
            failure, own = self._failure(end), self._own_error(end)
            if own is None:
                raise failure
            own.__cause__ = RemoteTraceback(str(failure))
            raise own
        values = [self._value(end, replica) for replica in range(spec.replicas)]
        return values if len(values) > 1 else values[0]

    def terminate(self) -> None:
        """Stop the job (see `JobHandle.terminate`). Child jobs continue."""
        self.terminate_with(())

    def terminate_with(self, others: Iterable[JobHandle]) -> None:
        """Stop this job and others (see `fray.client.StopsMany`)."""
        self._check()
        jobs = [self, *(job for job in others if isinstance(job, SlurmJob))]
        ended = {group: group.ended() for group in {job.group for job in jobs}}
        live = [job for job in jobs if job.index not in ended[job.group]]
        for job in live:
            job.group.mark("stop", job.index)
        commands.cancel(job.task for job in live)
        self._client.hurry()

    def logs(self) -> str:
        """Return stdout and stderr of all attempts, replica by replica."""
        return "".join(self.replica_logs().values())

    def replica_logs(self) -> dict[int | None, str]:
        """Like `logs`, separately for each replica (see `fray.client.GivesReplicaLogs`)."""
        self._check()
        logs = {
            replica: b"".join(self.group.outputs(self.index, replica).values())
            for replica in range(self.group.spec().replicas)
        }
        return {replica: data.decode(errors="replace") for replica, data in logs.items() if data}

    def attempt_outputs(self) -> dict[tuple[int, int], list[tuple[int, bytes]]]:
        """Return the output of each attempt, all as stdout (see `fray.client.GivesAttemptOutputs`)."""
        self._check()
        return {
            (replica, attempt): [(1, data)]
            for replica in range(self.group.spec().replicas)
            for attempt, data in self.group.outputs(self.index, replica).items()
        }

    def add_done_callback(self, callback: Callable[[JobHandle], object]) -> None:
        self._check()
        with self._lock:
            if not self._done.is_open():
                self._callbacks.append(callback)
                return
        self._call_back(callback)

    def tell(self, state: SlurmState) -> None:
        """Note a state in which the job has not ended."""
        is_told = state.state == "PENDING" and state.reason != "None"
        self._pending_reason = state.reason if is_told else ""

    def finish(self, end: End | None) -> None:
        """Notify waiters of the end; None if the client was shut down first."""
        with self._lock:
            if self._done.is_open():
                return
            self._end = end
            self._done.open()
        for callback in self._callbacks:
            self._call_back(callback)
        self._callbacks.clear()

    def _check(self) -> None:
        self._client.check_open(f"job {self._name!r}")

    def _await_end(self, timeout: float | None) -> End:
        self._check()
        deadline = None if timeout is None else time.monotonic() + timeout
        self._done.wait(timeout)
        if self._end is None:
            if self._done.is_open():
                self._check()
                raise Conflict(f"job {self._name!r}: its Slurm client has been shut down; make a new one")
            assert deadline is not None, "without a timeout, only the end opens the latch"
            if (end := self.group.end(self.index)) is None:
                raise DeadlineExceeded(f"job {self._name!r} is {self.status()} after waiting {timeout} s")
            return end
        return self._end

    def _failure(self, end: End) -> JobFailed:
        retried = f" (attempt {end.attempt})" if end.attempt > 1 else ""
        word = "was stopped" if end.status is JobStatus.STOPPED else "failed"
        reason = f": {end.reason}" if end.reason else ""
        return JobFailed(
            f"job {self.job_id} {word}{retried}{reason}",
            end.status,
            job_id=self.job_id,
            exit_code=end.exit_code,
            was_preempted=end.preempted,
        )

    def _run(self, end: End) -> Path:
        return self.group.path / "runs" / str(self.index) / str(end.attempt)

    def _own_error(self, end: End) -> BaseException | None:
        if end.status is not JobStatus.FAILED or not end.attempt:
            return None
        try:
            packed = (self._run(end) / f"error.{end.replica}").read_bytes()
        except FileNotFoundError:
            return None
        return unpack_error(packed, self.job_id)

    def _value(self, end: End, replica: int) -> Any:
        what = f"job {self._name!r}"
        try:
            packed = (self._run(end) / f"error.{replica}.value").read_bytes()
        except OSError as error:
            raise ResultUnavailable(f"the result of {what} cannot be read: {error}") from error
        return unpack_result(packed, what)

    def _call_back(self, callback: Callable[[JobHandle], object]) -> None:
        try:
            callback(self)
        except (Exception, SystemExit):  # the user's own, which must not end the thread that others need
            logger.exception("job %r: a done callback failed", self._name)
