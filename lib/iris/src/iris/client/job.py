"""Handles of jobs and tasks."""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from iris.client.errors import JobFailedError
from iris.client.job_env import shown_already
from iris.client.logs.printer import LogPrinter
from iris.client.types import JobStatus, LogLine, TaskLogEntry, TaskStatus, log_entries
from iris.cluster.types import JobName, JobState, TaskState
from rigging.errors import MarinError

if TYPE_CHECKING:
    from iris.client.submission.submit import Submission


class JobClient(Protocol):
    """The calls of `IrisClient` that handles use."""

    def status(self, job_id: str) -> JobStatus: ...
    def terminate(self, job_id: str, reason: str = "") -> list[str]: ...
    def list_tasks(self, job_id: str) -> list[TaskStatus]: ...
    def task_status(self, task_id: str) -> TaskStatus: ...
    def exception(self, status: JobStatus) -> BaseException | None: ...
    def wait_jobs(self, jobs: "Iterable[Job]", any: bool = False, timeout: float | None = None) -> list[JobStatus]: ...
    def read_logs(
        self,
        task_id: str,
        *,
        since: float = 0,
        max_lines: int = 0,
        from_start: bool = False,
        follow: bool = False,
        include_children: bool = False,
    ) -> Iterator[LogLine]: ...


class Task:
    """One replica of a job."""

    def __init__(self, client: JobClient, task_id: str) -> None:
        self._client = client
        self.task_id = JobName.known(task_id)

    def __repr__(self) -> str:
        return f"Task({str(self.task_id)!r})"

    @property
    def task_index(self) -> int:
        """The task's index in its job."""
        return self.task_id.require_task()[1]

    @property
    def job_id(self) -> JobName:
        """The id of the task's job."""
        return self.task_id.job

    @property
    def state(self) -> TaskState:
        """Its current state. Each access asks the controller."""
        return self.status().state

    def status(self) -> TaskStatus:
        """Return the current status."""
        return self._client.task_status(self.task_id)

    def logs(self, max_lines: int = 0) -> list[TaskLogEntry]:
        """Return the task's output so far: the last `max_lines` lines, or all for 0."""
        return list(log_entries(self._client.read_logs(self.task_id, max_lines=max_lines)))


class Job:
    """A submitted job.

    Args:
        key: The idempotency key, if this process submitted the job. The job's end may then be known without a call.
    """

    def __init__(self, client: JobClient, job_id: str, key: str = "") -> None:
        self._client = client
        self.job_id = JobName.known(job_id)
        self.key = key

    def __repr__(self) -> str:
        return f"Job({str(self.job_id)!r})"

    @property
    def name(self) -> JobName:
        """The job's id, parsed."""
        return self.job_id

    def status(self) -> JobStatus:
        """Return the current status."""
        return self._client.status(self.job_id)

    @property
    def state(self) -> JobState:
        """Its current state. Each access asks the controller."""
        return self.status().state

    def state_only(self) -> JobState:
        """Return the current state of the job."""
        return self.state

    def tasks(self) -> list[Task]:
        """Return the job's tasks by index."""
        return [Task(self._client, status.task_id) for status in self._client.list_tasks(self.job_id)]

    def logs(self, max_lines: int = 0) -> list[LogLine]:
        """Return the output of the job's tasks so far: the last `max_lines` lines, or all for 0."""
        return list(self._client.read_logs(self.job_id, max_lines=max_lines))

    def wait(
        self,
        timeout: float | None = 300.0,
        poll_interval: float | None = None,  # noqa: ARG002 - accepted for old callers; waiting is by event
        *,
        raise_on_failure: bool = True,
        stream_logs: bool = False,
    ) -> JobStatus:
        """Wait for the job's end and return its final status.

        Args:
            timeout: Seconds; None for no limit.
            poll_interval: Ignored.
            raise_on_failure: Raise if the job does not succeed.
            stream_logs: Meanwhile print the output of the job and its child jobs.

        Raises:
            JobFailedError: The job failed or was stopped. The exception of its callable is the cause, if available.
            DeadlineExceeded: The timeout expired. The job continues.
        """
        if not stream_logs:
            status = self._client.wait_jobs([self], timeout=timeout)[0]
        else:
            silent = shown_already(self.job_id, os.environ)
            printer = LogPrinter(self.job_id, prefix_own=self.status().replicas > 1, silent=silent)
            streamer = LogThread(self._client, self.job_id, printer).start()
            try:
                status = self._client.wait_jobs([self], timeout=timeout)[0]
                streamer.join()
            finally:
                streamer.stop()
        if raise_on_failure and status.state is not JobState.SUCCEEDED:
            raise JobFailedError(status) from self._client.exception(status)
        return status

    def terminate(self, reason: str = "") -> list[str]:
        """Stop the job and its live children. Return the ids of the stopped jobs."""
        return self._client.terminate(self.job_id, reason)


class SomeRefused(MarinError):
    """The controller refused some jobs of a batch. The others are stored.

    Attributes:
        errors: The reasons, by index of the plan. jobs: The handles by index; None where refused.
    """

    def __init__(self, errors: Mapping[int, MarinError], jobs: Sequence[Job | None]) -> None:
        first, why = next(iter(errors.items()))
        super().__init__(f"{len(errors)} of {len(jobs)} jobs were refused; the first (place {first}): {why}")
        self.errors = errors
        self.jobs = jobs


def handles(client: JobClient, results: "Sequence[Submission | MarinError]") -> list[Job]:
    """Return the handles of a batch of jobs, in order. Raise SomeRefused with the handles if some were refused."""
    jobs = [None if isinstance(result, MarinError) else Job(client, result.job_id, result.key) for result in results]
    errors = {place: result for place, result in enumerate(results) if isinstance(result, MarinError)}
    if errors:
        raise SomeRefused(errors, jobs)
    return [job for job in jobs if job is not None]


class LogThread:
    """Print the output of a job and its children from the start, until they have ended or `stop` is called.

    Args:
        client: Reads the log.
        job_id: The job.
        printer: Formats the lines.
    """

    def __init__(self, client: JobClient, job_id: str, printer: LogPrinter) -> None:
        self._printer = printer
        self._lines = client.read_logs(job_id, from_start=True, follow=True, include_children=True)
        self._stopped = False
        self.error: MarinError | None = None
        self.unwritten = ""
        """Why output could not be written, for example because of a full disk; empty if all was written."""
        self._thread = threading.Thread(target=self._print_all, name=f"logs of {job_id}", daemon=True)

    def start(self) -> "LogThread":
        """Start printing."""
        self._thread.start()
        return self

    def _print_all(self) -> None:
        try:
            for line in self._lines:
                if self._stopped:
                    return
                self._printer.write(line)
            self._printer.finish()
        except MarinError as error:
            self.error = error
        except (BrokenPipeError, ValueError):
            self._stopped = True  # stdout is closed: the job matters more than its output
        except OSError as error:
            self.unwritten = error.strerror or str(error)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until everything is printed; return False on timeout."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop printing."""
        self._stopped = True
