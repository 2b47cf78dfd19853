"""Handles of jobs on an Iris cluster."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fray.backends.iris.convert import to_fray_status
from fray.backends.iris.output import NewLines, outputs_by_attempt
from fray.backends.iris.watch import JobWatcher
from fray.errors import JobFailed
from fray.protocols import JobHandle
from fray.sending.remote_errors import RemoteTraceback
from fray.types import JobStatus
from iris.client import IrisClient, error_with_source
from iris.client import JobStatus as EndedJob
from iris.cluster.types import JobState
from rigging.errors import Unavailable


class IrisJobHandle:
    """A job on an Iris cluster. It uses the client that submitted it.

    Args:
        check: Raises Conflict, starting with its argument, if that client was shut down or this process is a fork.
    """

    def __init__(self, client: IrisClient, job_id: str, watcher: JobWatcher, check: Callable[[str], None]) -> None:
        self._client = client
        self._job_id = job_id
        self._watcher = watcher
        self._check = check
        # Of one that succeeded nothing is left to wait for, so the next question need not go to the cluster. Kept here
        # and not by id: a name, and so an id, that is free again may be another job's.
        self._succeeded = False

    @property
    def job_id(self) -> str:
        return self._job_id

    def status(self) -> JobStatus:
        if self._succeeded:
            return JobStatus.SUCCEEDED
        self._check(f"job {self._job_id}")
        return to_fray_status(self._client.status(self._job_id).state)

    def pending_reason(self) -> str:
        """Why the job's first pending task has not been placed."""
        self._check(f"job {self._job_id}")
        return self._client.status(self._job_id).pending_reason

    def wait(self, timeout: float | None = None, *, raise_on_failure: bool = True) -> JobStatus:
        """Wait for the job's end (see `JobHandle.wait`). Inside a job, that job lends its CPUs meanwhile."""
        if self._succeeded:
            return JobStatus.SUCCEEDED
        self._check(f"job {self._job_id}")
        ended = self._wait(timeout)
        status = to_fray_status(ended.state)
        if raise_on_failure and status is not JobStatus.SUCCEEDED:
            raise self._failure(ended) from self._client.exception(ended)
        return status

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job's end and return the callable's value (see `JobHandle.result`)."""
        self._check(f"job {self._job_id}")
        ended = self._wait(timeout)
        if ended.state is not JobState.SUCCEEDED:
            failure, own = self._failure(ended), self._client.exception(ended)
            if own is None:
                raise failure
            own.__cause__ = RemoteTraceback(str(failure))
            raise own
        values = self._client.results(ended)
        return list(values) if len(values) > 1 else values[0]

    def terminate(self) -> None:
        """Stop the job and its children. On return the stop is final."""
        self._check(f"job {self._job_id}")
        self._client.terminate(self._job_id)

    def logs(self) -> str:
        """Return the output of all tasks so far, in the order of the cluster's log."""
        self._check(f"job {self._job_id}")
        lines = self._client.read_logs(self._job_id)
        return "".join(line.text if line.partial else line.text + "\n" for line in lines)

    def attempt_outputs(self) -> Mapping[tuple[int, int], Sequence[tuple[int, bytes]]]:
        """Return the output of each attempt (see `fray.client.GivesAttemptOutputs`)."""
        self._check(f"job {self._job_id}")
        return outputs_by_attempt(self._client.read_logs(self._job_id))

    def _wait(self, timeout: float | None) -> EndedJob:
        try:
            (ended,) = self._client.wait_jobs([self._job_id], timeout=timeout)
        except Unavailable:
            self._check(f"job {self._job_id}")  # shut down meanwhile, which closes the channel under the call
            raise
        return ended

    def _failure(self, ended: EndedJob) -> JobFailed:
        error = f": {error_with_source(ended)}" if ended.error else ""
        return JobFailed(
            f"job {self._job_id} {ended.state.word} (its log: iris job logs {self._job_id}){error}",
            to_fray_status(ended.state),
            job_id=self._job_id,
            exit_code=-ended.exit_signal if ended.exit_signal else ended.exit_code,
            was_preempted=ended.state is JobState.WORKER_FAILED,
        )

    def add_done_callback(self, callback: Callable[[JobHandle], object]) -> None:
        def told(succeeded: bool) -> None:
            self._succeeded = self._succeeded or succeeded
            callback(self)

        self._check(f"job {self._job_id}")
        self._watcher.watch(self._job_id, told)


class OuterIrisJobHandle(IrisJobHandle):
    """A job submitted outside of any job, so that no other process shows its output."""

    def __init__(self, client: IrisClient, job_id: str, watcher: JobWatcher, check: Callable[[str], None]) -> None:
        super().__init__(client, job_id, watcher, check)
        self._lines = NewLines(client, job_id)

    def new_output(self, *, ended: bool = False) -> Mapping[int | None, str]:
        """Return the output since the last call (see `fray.client.GivesNewOutput`)."""
        self._check(f"job {self._job_id}")
        return self._lines.take(ended=ended)
