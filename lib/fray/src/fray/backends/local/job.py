"""The life of one job of the local backend."""

import contextvars
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

from fray.backends.common.attempted_job import AttemptedJob
from fray.backends.common.job_life import (
    SUCCESS,
    AttemptEnd,
    AttemptStatus,
    Begin,
    Broken,
    Job,
    ReplicaEnded,
    StopAsked,
    advance,
)
from fray.backends.common.process_owner import ProcessOwner
from fray.backends.common.processes import (
    KILL_AFTER_SECONDS,
    OutputFile,
    ProcessTree,
    describe_failure,
    with_own_python,
)
from fray.backends.local.subprocess_call import SubprocessCall
from fray.errors import JobFailed
from fray.replica import REPLICA_ENV, enter_replica, replica_index
from fray.types import CallableEntrypoint, JobRequest, JobStatus
from rigging.filesystem.budget import budget_environment
from rigging.process.calls import call_to_end, exit_status
from rigging.results import NOT_RETURNED, pack_problem, unpack_result

_RUN = Begin(running=True)
_Keep = Callable[[Callable[[], Any]], None]
_Start = Callable[[Mapping[str, str], str | None, OutputFile], ProcessTree]


class LocalJob(AttemptedJob):
    """A job and its handle. The client calls `run` once, in its own thread. Other methods are thread-safe.

    Args:
        job_id: Unique among the client's jobs.
        request: The request.
        on_end: Called once with the job when its final status is known, before any waiter is notified.
        while_waiting: Context manager around a wait, so that a waiting job can lend its slot.
        subprocess_call: The request's callable, if it runs in separate processes.
        process_environment: Extra variables for programs and callables whose processes get a lifeline.
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
        separate = request.entrypoint.binary_entrypoint is not None or subprocess_call is not None
        super().__init__(job_id, request, interruptible=separate)
        self._owner = ProcessOwner()
        self._subprocess_call = subprocess_call
        self._process_environment = process_environment
        self._on_end = on_end
        self._while_waiting = while_waiting
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._running: set[ProcessTree] = set()
        self._outputs = [OutputFile() for _ in range(request.replica_count)] if separate else []

    def status(self) -> JobStatus:
        life = self._life
        if life.end is None:
            # In a fork it would stay as it is for ever.
            self._check_process()
        return life.status

    def terminate(self, kill_after: float = KILL_AFTER_SECONDS) -> None:
        """Stop the job.

        A program's process group gets SIGTERM, then SIGKILL after `kill_after` seconds; the job is stopped when the
        group is gone. A callable cannot be interrupted: its job is stopped at once, but its thread continues and its
        outcome is ignored.
        """
        self._check_process()
        self._apply(StopAsked(kill_after))

    def logs(self) -> str:
        """Return stdout and stderr of all attempts, replica by replica; "" for a callable, which writes to this
        process's streams.
        """
        return "".join(output.read() for output in self._outputs)

    def replica_logs(self) -> dict[int | None, str]:
        """Like `logs`, separately for each replica (see `fray.client.GivesReplicaLogs`)."""
        return {index: text for index, output in enumerate(self._outputs) if (text := output.read())}

    def run(self) -> None:
        """Run the job to its end, including retries."""
        try:
            with self._lock:
                self._life, _ = advance(self._life, _RUN)
            attempt = 0
            while self._life.attempt > attempt and self._life.end is None:
                attempt = self._life.attempt
                self._run_attempt(attempt)
        except BaseException as broken:  # replicas that cannot be started: no caller may wait for ever
            self._apply(Broken(AttemptEnd(AttemptStatus.FAILED, detail=broken)))

    def _check_process(self) -> None:
        self._owner.check("job", self.request.name)

    def _await_end(self, timeout: float | None) -> bool:
        with self._while_waiting():
            return self._done.wait(timeout)

    def _raise_failure(self) -> None:
        """Raise a callable's own exception unchanged."""
        if self._error is not None:
            # Each raise adds frames to the traceback; every waiter shall see only the job's own.
            raise self._error.with_traceback(self._traceback)

    def _start_attempt(self, attempt: int) -> None:
        """Do nothing: `run`, which has the job's thread, starts the attempts."""

    def _stop_attempt(self, grace: float | None) -> None:
        for tree in self._running:
            tree.terminate(KILL_AFTER_SECONDS if grace is None else grace)

    def _close(self, ended: Job) -> None:
        if ended.status is JobStatus.STOPPED:
            self._error = self._failure("was stopped", status=JobStatus.STOPPED)
        elif ended.end is not None:
            self._error = ended.end.detail
        self._traceback = self._error.__traceback__ if self._error else None
        for output in self._outputs:
            output.settle()
        self._on_end(self)

    def _run_attempt(self, attempt: int) -> None:
        """Run all replicas once."""
        count = self.request.replica_count
        if count == 1:
            self._run_replica(attempt, 0)
            return
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._run_replica, attempt, index),
                name="fray-replica",
                daemon=True,
            )
            for index in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run_replica(self, attempt: int, index: int) -> None:
        try:
            error = self._run_entrypoint(index, partial(self._keep_returned, attempt, index))
        except BaseException as unexpected:  # a replica that could not even be started has failed, too
            error = unexpected
        end = SUCCESS if error is None else AttemptEnd(AttemptStatus.FAILED, detail=error)
        try:
            self._apply(ReplicaEnded(attempt, index, end))
        except BaseException as broken:  # our own mistake: no caller may wait for ever
            self._apply(Broken(AttemptEnd(AttemptStatus.FAILED, detail=broken)))

    def _run_entrypoint(self, index: int, keep: _Keep) -> BaseException | None:
        enter_replica(index)
        entrypoint = self.request.entrypoint
        if self._subprocess_call is not None:
            return self._call_in_subprocess(self._subprocess_call, keep)
        if entrypoint.callable_entrypoint is not None:
            return self._call(entrypoint.callable_entrypoint, keep)
        assert entrypoint.binary_entrypoint is not None
        entry = entrypoint.binary_entrypoint
        argv, with_lifeline = [entry.command, *entry.args], self._process_environment is not None

        def start(env: Mapping[str, str], cwd: str | None, output: OutputFile) -> ProcessTree:
            return ProcessTree.start(argv, env, cwd, output, with_lifeline)

        return self._execute(start, repr(entry.command))

    def _call(self, entry: CallableEntrypoint, keep: _Keep) -> BaseException | None:
        try:
            value = call_to_end(entry.callable, *entry.args, **entry.kwargs)
        except SystemExit as error:
            # Raised again by wait(), SystemExit would end the waiting program in silence.
            code = exit_status(error.code)
            if code == 0:
                keep(partial(unpack_result, pack_problem(NOT_RETURNED), f"job {self.request.name!r}"))
                return None
            return self._failure(f"called sys.exit({error.code!r})", exit_code=code, cause=error)
        except BaseException as error:  # the job's own exception, whatever it is, is raised where the job is waited for
            return error
        if value is not None:
            keep(lambda: value)
        return None

    def _call_in_subprocess(self, call: SubprocessCall, keep: _Keep) -> BaseException | None:
        what, result = f"job {self.request.name!r}", call.new_result()
        failure = self._execute(partial(call.start, result), "its process")
        load = call.returned(result, what)
        failure = call.raised(result, what) or failure
        if failure is not None:
            return failure
        if load is None:
            return self._failure("its process ended with exit code 0 before its function returned", exit_code=0)
        keep(load)
        return None

    def _execute(self, start: _Start, what: str) -> BaseException | None:
        output = self._outputs[replica_index()]
        environment = self.request.environment
        own = environment.env_vars if environment else {}
        env = {**os.environ, **budget_environment(), **(self._process_environment or {}), **own}
        env["PATH"] = with_own_python(env.get("PATH"))
        env[REPLICA_ENV] = str(replica_index())
        workspace = environment.workspace if environment else None
        try:
            tree = start(env, workspace, output)
        except OSError as error:
            return self._failure(f"cannot start {what}: {error.strerror}: {error.filename}", cause=error)
        with self._lock:
            self._running.add(tree)
            unwanted = self._life.stopping or self._life.failing
        if unwanted:
            tree.terminate()
        try:
            code = tree.wait()
        except ChildProcessError as error:
            return self._failure(f"the exit code of {what} is unknown: {error.strerror}", cause=error)
        finally:
            with self._lock:
                self._running.discard(tree)
        if code == 0:
            return None
        return self._failure(describe_failure(what, code, output), exit_code=code)

    def _failure(
        self,
        what: str,
        *,
        status: JobStatus = JobStatus.FAILED,
        exit_code: int | None = None,
        cause: BaseException | None = None,
    ) -> BaseException:
        failure = JobFailed(f"job {self.request.name!r}: {what}", status, job_id=self._job_id, exit_code=exit_code)
        failure.__cause__ = cause
        return failure
