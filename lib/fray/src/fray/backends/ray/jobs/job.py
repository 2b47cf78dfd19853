"""A job on Ray and its handle. It starts, stops and observes attempts; `job_life` decides what happens next."""

import functools
import logging
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import cloudpickle

from fray.backends.common.attempted_job import AttemptedJob
from fray.backends.common.job_life import (
    AttemptEnd,
    AttemptStatus,
    Begin,
    Broken,
    Job,
    ReplicaEnded,
    Seen,
    StopAsked,
)
from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray.jobs.canceller import KILL_AFTER_SECONDS, TaskCanceller
from fray.backends.ray.jobs.completion import CompletionWatcher
from fray.backends.ray.jobs.output import SESSION_SECONDS, JobOutput, OutputOwner
from fray.backends.ray.payload import TaskPayload, TaskResult
from fray.backends.ray.resources import host_resources, lacking
from fray.errors import JobFailed
from fray.protocols import JobHandle
from fray.sending.remote_errors import RemoteTraceback
from fray.types import JobRequest, JobStatus
from rigging.errors import DeadlineExceeded
from rigging.process.exception_parts import title_of
from rigging.process.latch import Latch
from rigging.results import is_stored, remove_stored_file, unpack_result

logger = logging.getLogger(__name__)

_END_SECONDS = 10.0


class Plan(NamedTuple):
    """Everything that each attempt of a job needs, computed once.

    Args:
        payload: The payload of its tasks.
        options: Ray's task options.
        is_program: Whether the job runs a program, which gets SIGTERM before it is killed.
    """

    payload: TaskPayload
    options: dict[str, Any]
    is_program: bool


class JobOwner(OutputOwner, Protocol):
    """The part of a client that its jobs use."""

    parent: str
    completions: CompletionWatcher
    canceller: TaskCanceller

    def launch(
        self, job: "RayJob", attempt: int, replica: int, options: dict[str, Any], env: Mapping[str, str] | None = None
    ) -> Any:
        """Start the Ray task of one replica.

        Args:
            job: The replica's job.
            attempt: Number of the attempt, from 1.
            replica: The replica's index.
            options: Ray's task options.
            env: Extra variables of this replica.
        """
        ...

    def forget(self, job: "RayJob") -> None:
        """Free the name of an ended job."""
        ...

    def block_on(self, handles: Sequence[JobHandle], timeout: float | None) -> None:
        """Block in Ray until one of the jobs may have ended, or about `timeout` seconds."""
        ...


class RayJob(AttemptedJob):
    """A job of one replica, where each attempt is one Ray task. Only the submitting process has its handle."""

    def __init__(
        self,
        client: JobOwner,
        job_id: str,
        request: JobRequest,
        plan: Plan,
        *,
        review: Callable[[int], object] | None = None,
    ) -> None:
        super().__init__(job_id, request, interruptible=True, review=review)
        self.plan = plan
        self.client = client
        self.parent = client.parent
        self._refs: dict[Any, int] = {}
        self._output = JobOutput(client, job_id)

    @property
    def ended(self) -> bool:
        """Whether the final status is known and all waiters were notified."""
        return self._done.is_open()

    def wait_done(self, seconds: float) -> None:
        """Wait for the end without polling for it."""
        self._done.wait(seconds)

    def start(self) -> None:
        """Start the first attempt, unless the job was stopped meanwhile."""
        self._apply(Begin())

    def refs(self) -> list[Any]:
        """Ray objects, one of which is ready no later than the job's end; empty before the start."""
        with self._lock:
            return list(self._refs)

    def terminate(self) -> None:
        """Stop the job (see `JobHandle.terminate`).

        A program's process group gets SIGTERM, then SIGKILL after a delay. A callable's process is killed.
        """
        self._check_process()
        self._apply(StopAsked(KILL_AFTER_SECONDS))

    def status(self) -> JobStatus:
        """Return the status. A very short job may never be observed running."""
        self._check_process()
        if self._life.end is None:
            self.client.completions.look(self.refs())
        if self._life.status is JobStatus.PENDING and self._runs():
            self._apply(Seen())
        return self._life.status

    def pending_reason(self) -> str:
        """The resource that the cluster lacks for the job; "" if it may start any moment."""
        self._check_process()
        if self._life.status is not JobStatus.PENDING:
            return ""
        return lacking(host_resources(self.request.resources), ray_cluster.free_resources_lately())

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Wait for the job's end (see `JobHandle.wait`).

        Raises:
            JobFailed: With the remote traceback in the message, and the job's own exception as cause.
        """
        self._check_process()
        return super().wait(timeout, raise_on_failure=raise_on_failure)

    def logs(self) -> str:
        """Return stdout and stderr of all attempts and replicas, including child processes.

        While the job runs, the reported output lags up to a quarter of a second.
        """
        return b"".join(data for _, data in self._pieces()).decode("utf-8", errors="replace")

    def replica_logs(self) -> dict[int | None, str]:
        """Like `logs`, separately for each replica (see `fray.client.GivesReplicaLogs`)."""
        texts: dict[int | None, bytes] = {}
        for replica, data in self._pieces():
            texts[replica] = texts.get(replica, b"") + data
        return {replica: text.decode("utf-8", errors="replace") for replica, text in texts.items()}

    def give_up(self, problem: str, error: BaseException, answer: TaskResult | None = None) -> None:
        """Fail a job that cannot continue, and notify its waiters.

        Args:
            problem: The failure, for the message.
            error: The reason.
            answer: The last task's answer, if there was one.
        """
        refs = self.refs()
        if refs:
            self.client.canceller.stop(refs, gently=False, done=Latch())
        self._apply(Broken(AttemptEnd(AttemptStatus.FAILED, f"{problem}: {title_of(error)}", answer)))

    def _check_process(self) -> None:
        # A lock that another thread held at the moment of the fork is never released in the child.
        ray_cluster.refuse_forks(f"job {self.request.name!r}")

    def _start_attempt(self, attempt: int) -> None:
        self._launch(attempt, 0, self.plan.options)

    def _launch(
        self, attempt: int, replica: int, options: dict[str, Any], env: Mapping[str, str] | None = None
    ) -> None:
        ref = self.client.launch(self, attempt, replica, options, env)
        self._refs[ref] = replica
        self.client.completions.add(ref, self._settle)

    def _stop_attempt(self, grace: float | None) -> None:  # noqa: ARG002 - programs have Ray's own time
        if self._refs:
            self.client.canceller.stop(list(self._refs), self.plan.is_program, self._done)

    def _close(self, ended: Job) -> None:  # noqa: ARG002
        # The name is free before anybody can know of the end.
        self.client.forget(self)

    def _settle(self, ref: Any, end: AttemptEnd) -> None:
        """Handle the end of a replica's task. Called once per task."""
        with self._lock:
            replica = self._refs.pop(ref, None)
            if replica is None or self._life.end is not None:
                return
            attempt = self._life.attempt
            self._output.keep(attempt, replica, end)
        if end.status is AttemptStatus.SUCCEEDED and end.detail is not None and end.detail.value is not None:
            self._keep_value(attempt, replica, end.detail.value)
        try:
            self._apply(ReplicaEnded(attempt, replica, end))
        except Exception as error:
            # Ray's or whatever it is: only this thread ends the job, and no caller may wait for ever.
            logger.exception("job %r cannot be tried again", self.request.name)
            self.give_up("it could not be tried again", error, end.detail)

    def _keep_value(self, attempt: int, replica: int, packed: bytes) -> None:
        load = functools.partial(unpack_result, packed, f"job {self.request.name!r}")
        if is_stored(packed):
            # A job of this backend has one handle, with which nobody is left to ask for it.
            weakref.finalize(load, remove_stored_file, packed)
        self._keep_returned(attempt, replica, load)

    def _await_end(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done.is_open():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                self.client.completions.look(self.refs())
                break
            self.client.block_on([self], left)
        return self._done.is_open()

    def _raise_failure(self) -> None:
        if self._life.status is not JobStatus.SUCCEEDED:
            raise self._failure() from self._cause()

    def _failure(self) -> JobFailed:
        life, end = self._life, self._life.end
        assert end is not None, "it has ended"
        outcome: TaskResult | None = end.detail
        if life.status is JobStatus.STOPPED:
            text = f"job {self.request.name!r} was stopped"
        else:
            retried = f" (attempt {life.attempt})" if life.attempt > 1 else ""
            word = "failed"
            if end.status is AttemptStatus.PREEMPTED:
                word = "was preempted"
                times = sum(each.status is AttemptStatus.PREEMPTED for each in life.attempts)
                retried = f" {times} times (max_retries_preemption={self.request.max_retries_preemption})"
            trace = f"\n\nRemote traceback:\n{outcome.trace}" if outcome is not None and outcome.trace else ""
            text = f"job {self.request.name!r} {word}{retried}: {end.reason}{trace}"
        exit_code = None if outcome is None else outcome.exit_code
        preempted = life.status is not JobStatus.STOPPED and end.status is AttemptStatus.PREEMPTED
        return JobFailed(text, life.status, job_id=self._job_id, exit_code=exit_code, was_preempted=preempted)

    def _cause(self) -> BaseException | None:
        """Return the job's own exception, where available."""
        outcome: TaskResult | None = None if self._life.end is None else self._life.end.detail
        if self._life.status is JobStatus.STOPPED or outcome is None or outcome.error is None:
            return None
        try:
            error = cloudpickle.loads(outcome.error)
        except Exception:
            # A class that this process lacks or cannot build: its text is in the message.
            return None
        return error if isinstance(error, BaseException) else None

    def _own_exception(self) -> BaseException | None:
        own = self._cause()
        if own is not None:
            assert self._life.end is not None  # else there is no cause
            own.__cause__ = RemoteTraceback(self._life.end.detail.trace)
        return own

    def _runs(self) -> bool:
        attempt = self._life.attempt
        ask: Callable[..., Any] = self.client.ask_session_if_up
        return bool(ask(lambda session: session.running.remote(self._job_id, attempt), SESSION_SECONDS))

    def _pieces(self) -> list[tuple[int, bytes]]:
        """Return pairs of a replica and its output, ended attempts first."""
        self._check_process()
        with self._lock:
            parts, life = self._output.parts(), self._life
        pieces = [(part.replica, self._output.read(part)) for part in parts]
        if life.end is not None:
            return pieces
        running = self._output.reported(life.attempt)
        if running:
            # What one session was told, the next may hear only in a while.
            self._apply(Seen())
        return [*pieces, *running]


def stop_all(jobs: Sequence[RayJob]) -> None:
    """Stop jobs, and wait for them until shortly after they are killed."""
    for job in jobs:
        job.terminate()
    deadline = time.monotonic() + KILL_AFTER_SECONDS + _END_SECONDS
    for job in jobs:
        try:
            job.wait(max(0.0, deadline - time.monotonic()), raise_on_failure=False)
        except DeadlineExceeded:
            logger.warning("job %r has not ended by %g s after it was stopped", job.request.name, KILL_AFTER_SECONDS)
