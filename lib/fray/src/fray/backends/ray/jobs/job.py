"""The life of a job on Ray, as its owner sees it: attempts, retries, status, output."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import cloudpickle
import ray

from fray.backends.ray import cluster as ray_cluster
from fray.backends.ray.jobs.canceller import KILL_AFTER_SECONDS, TaskCanceller
from fray.backends.ray.jobs.completion import CompletionWatcher
from fray.backends.ray.jobs.failures import AttemptEnd, AttemptStatus
from fray.backends.ray.lookup import LOST, Key
from fray.backends.ray.payload import TaskPayload, TaskResult
from fray.errors import JobFailed
from fray.protocols import JobHandle
from fray.remote_errors import title_of
from fray.types import JobRequest, JobStatus
from rigging.errors import DeadlineExceeded
from rigging.latch import Latch

logger = logging.getLogger(__name__)

_BLOCK_SECONDS = 1.0
_SESSION_SECONDS = 60.0
_END_SECONDS = 10.0


class Plan(NamedTuple):
    """Everything that each attempt of a job needs, worked out once.

    Args:
        payload: What its tasks bring along.
        options: Ray's task options.
        is_program: Whether it is a program, which is asked to stop before it is killed.
    """

    payload: TaskPayload
    options: dict[str, Any]
    is_program: bool


class _Kept(NamedTuple):
    """Output that a session had when its replica ended, and was asked for."""

    key: Key
    reported: bool
    ref: Any


class _Part(NamedTuple):
    """Output of a replica that has ended, or some of it."""

    replica: int
    data: bytes | _Kept


class AsksSession(Protocol):
    """A way to ask the client's session (see `SessionLink`)."""

    def ask(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask it, and start it again if need be."""
        ...


class JobOwner(Protocol):
    """The client of a job, as far as jobs need it."""

    parent: str
    completions: CompletionWatcher
    canceller: TaskCanceller

    @property
    def closed(self) -> bool: ...

    @property
    def sessions(self) -> AsksSession: ...

    def launch(
        self, job: "RayJob", attempt: int, replica: int, options: dict[str, Any], env: Mapping[str, str] | None = None
    ) -> Any:
        """Start the Ray task of one replica."""
        ...

    def forget(self, job: "RayJob") -> None:
        """Free the name of a job that has ended."""
        ...

    def block_on(self, handles: Sequence[JobHandle], timeout: float | None) -> None:
        """Wait until one of the jobs may have ended, or about `timeout` seconds."""
        ...

    def ask_session_if_up(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask the session; None when it cannot answer now."""
        ...

    def known_session(self) -> Any:
        """The session, if any process of this client has started it."""
        ...


class RayJob(ABC):
    """A job and its handle. Only the process that submitted it has one."""

    def __init__(self, client: JobOwner, job_id: str, request: JobRequest, plan: Plan) -> None:
        self.request = request
        self.plan = plan
        self.client = client
        self.attempts: list[AttemptEnd] = []
        self.parent = client.parent
        self._job_id = job_id
        self._lock = threading.RLock()
        self._done = Latch()
        self._status = JobStatus.PENDING
        self._stopping = False
        self._end = AttemptEnd(AttemptStatus.SUCCEEDED)
        self._attempt = 0
        self._failures = 0
        self._preemptions = 0
        self._callbacks: list[Callable[[JobHandle], object]] = []
        self._output: list[_Part] = []

    @property
    def job_id(self) -> str:
        return self._job_id

    @property
    def ended(self) -> bool:
        """Whether the final status is known, and everybody was told."""
        return self._done.is_open()

    def wait_done(self, seconds: float) -> None:
        """Wait for the end without looking for it."""
        self._done.wait(seconds)

    @abstractmethod
    def start(self) -> None:
        """Begin the first attempt."""

    @abstractmethod
    def refs(self) -> list[Any]:
        """Objects of which one becomes ready before, or when, the job ends; empty when there is none yet."""

    def terminate(self) -> None:
        """Stop the job (see `JobHandle.terminate`).

        A program's process group gets SIGTERM, and SIGKILL after a while; a callable's process is killed.
        """
        self._refuse_forks()
        self._stop()

    @abstractmethod
    def _stop(self) -> None:
        """Stop the tasks of the running attempt, and let no other begin."""

    def _stop_tasks(self, refs: Sequence[Any]) -> None:
        self.client.canceller.stop(refs, self.plan.is_program, self._done)

    def status(self) -> JobStatus:
        """Where the job is; a job that runs for less than a moment may never be seen running."""
        self._refuse_forks()
        if not self._status.finished():
            self.client.completions.look(self.refs())
        if self._status is JobStatus.PENDING and self._runs():
            self._note_running()
        return self._status

    def _note_running(self) -> None:
        with self._lock:
            if self._status is JobStatus.PENDING:
                self._status = JobStatus.RUNNING

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Wait for the end (see `JobHandle.wait`).

        Raises:
            JobFailed: With the remote traceback in its text, and the job's own exception as its cause.
        """
        self._refuse_forks()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done.is_open():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                self.client.completions.look(self.refs())
                if not self._done.is_open():
                    raise DeadlineExceeded(f"job {self.request.name!r} is {self._status} after waiting {timeout} s")
                break
            self.client.block_on([self], left)
        if raise_on_failure and self._status is not JobStatus.SUCCEEDED:
            raise self._failure() from self._cause()
        return self._status

    def logs(self) -> str:
        """Return stdout and stderr of all attempts and replicas, child processes included.

        While it runs, this is what was reported: up to a quarter of a second behind.
        """
        return b"".join(data for _, data in self._pieces()).decode("utf-8", errors="replace")

    def replica_logs(self) -> dict[int | None, str]:
        """The same, each replica's own (see `fray.client.GivesReplicaLogs`)."""
        texts: dict[int | None, bytes] = {}
        for replica, data in self._pieces():
            texts[replica] = texts.get(replica, b"") + data
        return {replica: text.decode("utf-8", errors="replace") for replica, text in texts.items()}

    def _pieces(self) -> list[tuple[int, bytes]]:
        """Pairs of a replica and its output; attempts that have ended come first."""
        self._refuse_forks()
        with self._lock:
            parts = list(self._output)
            running = None if self._status.finished() else self._attempt
        pieces = [(part.replica, self._read(part)) for part in parts]
        return pieces if running is None else [*pieces, *self._running_output(running)]

    def add_done_callback(self, callback: Callable[[JobHandle], object]) -> None:
        self._refuse_forks()
        with self._lock:
            if not self._status.finished():
                self._callbacks.append(callback)
                return
        self._call_back(callback)

    def abandon(self, error: BaseException) -> None:
        """Fail a job that could not be started, for those who have adopted it meanwhile. For the client."""
        refs = self.refs()
        if refs:
            self.client.canceller.stop(refs, gently=False, done=Latch())
        self._finish(AttemptEnd(AttemptStatus.FAILED, f"it could not be started: {title_of(error)}"))

    def _refuse_forks(self) -> None:
        # A lock that another thread held at the moment of the fork is never released in the child.
        ray_cluster.refuse_forks(f"job {self.request.name!r}")

    def _begin_attempt(self) -> None:
        self._attempt += 1

    def _attempt_ended(self, end: AttemptEnd) -> bool:
        """Note how an attempt ended; returns whether there is to be another."""
        with self._lock:
            self.attempts.append(end)
            if self._stopping or end.status in (AttemptStatus.SUCCEEDED, AttemptStatus.STOPPED):
                return False
            if end.status is AttemptStatus.PREEMPTED:
                self._preemptions += 1
                left = self.request.max_retries_preemption - self._preemptions
            else:
                self._failures += 1
                left = self.request.max_retries_failure - self._failures
        if left < 0:
            return False
        word = "was preempted" if end.status is AttemptStatus.PREEMPTED else "failed"
        logger.warning("job %r %s, %d retries left: %s", self.request.name, word, left, end.reason)
        return True

    def _finish(self, end: AttemptEnd) -> None:
        # The name is free before anybody can know of the end.
        self.client.forget(self)
        with self._lock:
            if self._status.finished():
                return
            stopped = self._stopping or end.status is AttemptStatus.STOPPED
            if stopped:
                self._status = JobStatus.STOPPED
            else:
                self._status = JobStatus.SUCCEEDED if end.status is AttemptStatus.SUCCEEDED else JobStatus.FAILED
            self._end = end
            callbacks, self._callbacks = self._callbacks, []
        self._done.open()
        for callback in callbacks:
            self._call_back(callback)

    def _call_back(self, callback: Callable[[JobHandle], object]) -> None:
        try:
            callback(self)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise
            # A user's callback must not end the thread that settles all jobs, not even by SystemExit.
            logger.exception("job %r: a done callback failed", self.request.name)

    def _failure(self) -> JobFailed:
        outcome = self._end.outcome
        if self._status is JobStatus.STOPPED:
            text = f"job {self.request.name!r} was stopped"
        else:
            retried = f" (attempt {self._attempt})" if self._attempt > 1 else ""
            word = "was preempted" if self._end.status is AttemptStatus.PREEMPTED else "failed"
            if self._end.status is AttemptStatus.PREEMPTED:
                retried = f" {self._preemptions} times (max_retries_preemption={self.request.max_retries_preemption})"
            trace = f"\n\nRemote traceback:\n{outcome.trace}" if outcome is not None and outcome.trace else ""
            text = f"job {self.request.name!r} {word}{retried}: {self._end.reason}{trace}"
        return JobFailed(text, job_id=self._job_id, exit_code=None if outcome is None else outcome.exit_code)

    def _cause(self) -> BaseException | None:
        """The job's own exception, where it can be had."""
        outcome = self._end.outcome
        if self._status is JobStatus.STOPPED or outcome is None or outcome.error is None:
            return None
        try:
            error = cloudpickle.loads(outcome.error)
        except Exception:
            # A class that this process lacks or cannot build: its text is in the message.
            return None
        return error if isinstance(error, BaseException) else None

    def _keep_output(self, replica: int, outcome: TaskResult | None) -> None:
        """Keep what an ended replica wrote; `outcome` is None when it wrote nothing or did not live to tell."""
        if outcome is None:
            return
        if outcome.reported:
            # Asked for now, as the session may be gone when somebody wants to read it.
            self._keep_reported_output(replica, reported=True)
        if outcome.output:
            self._output.append(_Part(replica, outcome.output))

    def _keep_reported_output(self, replica: int, reported: bool = False) -> None:
        """Keep what a replica that died had reported, if it `reported` anything."""
        session = self.client.known_session()
        if session is not None:
            key = (self._job_id, self._attempt, replica)
            self._output.append(_Part(replica, _Kept(key, reported, session.take.remote(key, reported))))

    def _read(self, part: _Part) -> bytes:
        if isinstance(part.data, bytes):
            return part.data
        try:
            data: bytes = ray.get(part.data.ref, timeout=_SESSION_SECONDS)
        except ray.exceptions.ActorDiedError:
            return LOST if self.client.closed else self._ask_another(part, part.data)
        except ray.exceptions.RayError as error:
            return f"[output lost: {type(error).__name__}]\n".encode()
        return data

    def _ask_another(self, part: _Part, kept: _Kept) -> bytes:
        """The same of the session that came after one that died: the replica may have reported to it again."""
        try:
            again: bytes = self.client.sessions.ask(lambda session: session.take.remote(*kept[:2]), _SESSION_SECONDS)
        except ray.exceptions.RayError:
            again = LOST
        with self._lock:
            if part in self._output:
                self._output[self._output.index(part)] = _Part(part.replica, again)
        return again

    def _runs(self) -> bool:
        attempt = self._attempt
        ask = self.client.ask_session_if_up
        return bool(ask(lambda session: session.running.remote(self._job_id, attempt), _SESSION_SECONDS))

    def _running_output(self, attempt: int) -> list[tuple[int, bytes]]:
        ask = self.client.ask_session_if_up
        replicas: dict[int, bytes] = (
            ask(lambda session: session.output.remote(self._job_id, attempt), _SESSION_SECONDS) or {}
        )
        if replicas:
            # What one session was told, the next may hear only in a while.
            self._note_running()
        return sorted(replicas.items())


class SingleJob(RayJob):
    """A job of one replica: one Ray task at a time."""

    def __init__(self, client: JobOwner, job_id: str, request: JobRequest, plan: Plan) -> None:
        super().__init__(client, job_id, request, plan)
        self._ref: Any = None

    def start(self) -> None:
        with self._lock:
            if not self._stopping:
                self._launch()
                return
        self._finish(AttemptEnd(AttemptStatus.STOPPED))

    def refs(self) -> list[Any]:
        ref = self._ref
        return [] if ref is None else [ref]

    def _stop(self) -> None:
        with self._lock:
            if self._stopping or self._status.finished():
                return
            # Where there is no task yet, there will be none.
            self._stopping = True
            refs = self.refs()
        if refs:
            self._stop_tasks(refs)

    def _launch(self) -> None:
        self._begin_attempt()
        self._ref = self.client.launch(self, self._attempt, 0, self.plan.options)
        self.client.completions.add(self._ref, self._settle)

    def _settle(self, ref: Any, end: AttemptEnd) -> None:
        """The task of an attempt has ended; called once for each."""
        with self._lock:
            if ref != self._ref or self._status.finished():
                return
            if end.outcome is not None:
                self._keep_output(0, end.outcome)
            elif end.status is not AttemptStatus.SUCCEEDED:
                self._keep_reported_output(0)
            if self._attempt_ended(end):
                try:
                    self._launch()
                    return
                except Exception as error:
                    # Ray's or whatever it is: only this thread ends the job, and no caller may wait for ever.
                    logger.exception("job %r cannot be tried again", self.request.name)
                    end = AttemptEnd(
                        AttemptStatus.FAILED, f"it could not be tried again: {title_of(error)}", end.outcome
                    )
        self._finish(end)


def stop_all(jobs: Sequence[RayJob]) -> None:
    """Stop jobs, and give them until a moment after they are killed to end."""
    for job in jobs:
        job.terminate()
    deadline = time.monotonic() + KILL_AFTER_SECONDS + _END_SECONDS
    for job in jobs:
        try:
            job.wait(max(0.0, deadline - time.monotonic()), raise_on_failure=False)
        except DeadlineExceeded:
            logger.warning("job %r has not ended by %g s after it was stopped", job.request.name, KILL_AFTER_SECONDS)
