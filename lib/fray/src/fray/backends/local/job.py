"""The life of one job of the local backend."""

import contextvars
import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType

from fray.backends.common.processes import KILL_AFTER_SECONDS, OutputFile, ProcessTree, describe_exit, with_own_python
from fray.backends.local.subprocess_call import SubprocessCall
from fray.errors import JobFailed
from fray.process_owner import ProcessOwner
from fray.protocols import JobHandle
from fray.replica import REPLICA_ENV, enter_replica, replica_index
from fray.types import CallableEntrypoint, JobRequest, JobStatus
from rigging.calls import call_to_end, exit_status
from rigging.errors import DeadlineExceeded
from rigging.filesystem.budget import budget_environment
from rigging.latch import Latch

logger = logging.getLogger(__name__)

_TAIL_LINES = 20
_Start = Callable[[Mapping[str, str], str | None, OutputFile], ProcessTree]


class LocalJob:
    """A job and its handle. `run` is called once, in a thread of the client's; everything else from anywhere.

    Args:
        job_id: Unique among the client's jobs.
        request: What to run.
        on_end: Called once with the job when its final status is known, just before anybody is told.
        while_waiting: Brackets a wait, so that a job that waits for this one can lend its slot.
        subprocess_call: The request's callable, when it is to run in processes of its own.
        process_environment: When programs and callables are to have processes with a lifeline: variables for them.
    """

    def __init__(
        self,
        job_id: str,
        request: JobRequest,
        on_end: Callable[["LocalJob"], None],
        while_waiting: Callable[[], AbstractContextManager[None]],
        subprocess_call: SubprocessCall | None = None,
        process_environment: Mapping[str, str] | None = None,
    ) -> None:
        self.request = request
        self._owner = ProcessOwner()
        self._subprocess_call = subprocess_call
        self._process_environment = process_environment
        self._job_id = job_id
        self._on_end = on_end
        self._while_waiting = while_waiting
        self._lock = threading.Lock()
        self._done = Latch()
        self._status = JobStatus.PENDING
        self._stopping = False
        self._attempt_failed = False
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._callbacks: list[Callable[[JobHandle], object]] = []
        self._running: set[ProcessTree] = set()
        self._output = OutputFile() if request.entrypoint.binary_entrypoint or subprocess_call else None

    @property
    def job_id(self) -> str:
        return self._job_id

    def status(self) -> JobStatus:
        if not self._status.finished():
            # In a fork it would stay as it is for ever.
            self._owner.check(f"job {self.request.name!r}")
        return self._status

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Wait for the end (see `JobHandle.wait`); a callable's own exception is raised as it is."""
        if not self._done.is_open():
            self._owner.check(f"job {self.request.name!r}")
            with self._while_waiting():
                if not self._done.wait(timeout):
                    raise DeadlineExceeded(f"job {self.request.name!r} is {self._status} after waiting {timeout} s")
        if raise_on_failure and self._error is not None:
            # Each raise adds frames to the traceback; every waiter shall see only the job's own.
            raise self._error.with_traceback(self._traceback)
        return self._status

    def terminate(self, kill_after: float = KILL_AFTER_SECONDS) -> None:
        """Stop the job.

        A program's process group gets SIGTERM, and SIGKILL `kill_after` seconds later; the job has stopped when it is
        gone. A callable cannot be interrupted: the job counts as stopped at once, its thread goes on until the
        callable returns, and what it returns or raises is ignored.
        """
        self._owner.check(f"job {self.request.name!r}")
        with self._lock:
            self._stopping = True
            nothing_to_wait_for = self._status is JobStatus.PENDING or self._output is None
            running = list(self._running)
        if nothing_to_wait_for:
            self._finish_stopped()
        for tree in running:
            tree.terminate(kill_after)

    def logs(self) -> str:
        """A program's stdout and stderr of all attempts and replicas; "" for a callable, which writes to our own."""
        return self._output.read() if self._output else ""

    def replica_logs(self) -> dict[int | None, str]:
        """The same (see `fray.client.GivesReplicaLogs`): what replicas write is not told apart."""
        return {None: self.logs()} if self._output else {}

    def add_done_callback(self, callback: Callable[[JobHandle], object]) -> None:
        self._owner.check(f"job {self.request.name!r}")
        with self._lock:
            if not self._status.finished():
                self._callbacks.append(callback)
                return
        self._tell(callback)

    def run(self) -> None:
        """Run the job to its end, retries included."""
        if not self._begin():
            return
        try:
            error = self._run_attempts()
        except BaseException as broken:  # any other error here: no caller may wait for ever
            error = broken
        if self._stopping:
            self._finish_stopped()
        else:
            self._finish(JobStatus.SUCCEEDED if error is None else JobStatus.FAILED, error)

    def _run_attempts(self) -> BaseException | None:
        error: BaseException | None = None
        for attempt in range(1 + self.request.max_retries_failure):
            error = self._run_attempt()
            if error is None or self._stopping:
                break
            retries_left = self.request.max_retries_failure - attempt
            if retries_left:
                logger.warning("job %r failed, %d retries left: %s", self.request.name, retries_left, error)
        return error

    def _begin(self) -> bool:
        with self._lock:
            if not self._stopping:
                self._status = JobStatus.RUNNING
            return not self._stopping

    def _run_attempt(self) -> BaseException | None:
        """Run all replicas once; return the first failure after stopping the programs of the others."""
        count = self.request.replica_count
        if count == 1:
            return self._run_replica(0)
        errors: list[BaseException] = []
        with self._lock:
            self._attempt_failed = False

        def replica(index: int) -> None:
            error = self._run_replica(index)
            if error is not None:
                with self._lock:
                    errors.append(error)
                    self._attempt_failed = True
                    others = list(self._running)
                for tree in others:
                    tree.terminate()

        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(replica, index), name="fray-replica", daemon=True
            )
            for index in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors[0] if errors else None

    def _run_replica(self, index: int) -> BaseException | None:
        try:
            return self._run_entrypoint(index)
        except BaseException as error:  # a replica that could not even be started has failed, too
            return error

    def _run_entrypoint(self, index: int) -> BaseException | None:
        enter_replica(index)
        entrypoint = self.request.entrypoint
        if self._subprocess_call is not None:
            return self._call_in_subprocess(self._subprocess_call)
        if entrypoint.callable_entrypoint is not None:
            return self._call(entrypoint.callable_entrypoint)
        assert entrypoint.binary_entrypoint is not None
        entry = entrypoint.binary_entrypoint
        argv, with_lifeline = [entry.command, *entry.args], self._process_environment is not None

        def start(env: Mapping[str, str], cwd: str | None, output: OutputFile) -> ProcessTree:
            return ProcessTree.start(argv, env, cwd, output, with_lifeline)

        return self._execute(start, repr(entry.command))

    def _call(self, entry: CallableEntrypoint) -> BaseException | None:
        try:
            call_to_end(entry.callable, *entry.args, **entry.kwargs)
        except SystemExit as error:
            # Raised again by wait(), SystemExit would end the waiting program in silence.
            code = exit_status(error.code)
            if code == 0:
                return None
            return self._failure(f"called sys.exit({error.code!r})", exit_code=code, cause=error)
        except BaseException as error:  # the job's own exception, whatever it is, is raised where the job is waited for
            return error
        return None

    def _call_in_subprocess(self, call: SubprocessCall) -> BaseException | None:
        result = call.new_result()
        failure = self._execute(partial(call.start, result), "its process")
        return call.raised(result, f"job {self.request.name!r}") or failure

    def _execute(self, start: _Start, what: str) -> BaseException | None:
        assert self._output is not None
        environment = self.request.environment
        own = environment.env_vars if environment else {}
        env = {**os.environ, **budget_environment(), **(self._process_environment or {}), **own}
        env["PATH"] = with_own_python(env.get("PATH"))
        env[REPLICA_ENV] = str(replica_index())
        workspace = environment.workspace if environment else None
        try:
            tree = start(env, workspace, self._output)
        except OSError as error:
            return self._failure(f"cannot start {what}: {error.strerror}: {error.filename}", cause=error)
        with self._lock:
            self._running.add(tree)
            unwanted = self._stopping or self._attempt_failed
        if unwanted:
            tree.terminate()
        try:
            code = tree.wait()
        except ChildProcessError as error:
            return self._failure(f"how {what} ended is not known: {error.strerror}", cause=error)
        finally:
            with self._lock:
                self._running.discard(tree)
        if code == 0:
            return None
        tail = self._output.tail(_TAIL_LINES)
        shown = f"; the end of its output:\n{tail}" if tail else "; it wrote nothing"
        return self._failure(f"{what} ended with {describe_exit(code)}{shown}", exit_code=code)

    def _failure(self, what: str, *, exit_code: int | None = None, cause: BaseException | None = None) -> BaseException:
        failure = JobFailed(f"job {self.request.name!r}: {what}", job_id=self._job_id, exit_code=exit_code)
        failure.__cause__ = cause
        return failure

    def _finish_stopped(self) -> None:
        self._finish(JobStatus.STOPPED, self._failure("was stopped"))

    def _finish(self, status: JobStatus, error: BaseException | None) -> None:
        with self._lock:
            if self._status.finished():
                return
            self._status = status
            self._error = error
            self._traceback = error.__traceback__ if error else None
            callbacks, self._callbacks = self._callbacks, []
        if self._output is not None:
            self._output.settle()
        self._on_end(self)
        self._done.open()
        for callback in callbacks:
            self._tell(callback)

    def _tell(self, callback: Callable[[JobHandle], object]) -> None:
        try:
            callback(self)
        except BaseException:
            # A user's callback must not end the job's thread, not even by SystemExit: other callbacks follow.
            logger.exception("job %r: a done callback failed", self.request.name)
