"""Errors of the client. Refused calls raise errors of rigging.errors."""

from iris.client.source_lines import error_with_source
from iris.client.types import JobStatus
from rigging.errors import AlreadyExists, JobFailed, Unavailable


class JobFailedError(JobFailed):
    """An awaited job ended without success. `status` is its final status."""

    def __init__(self, status: JobStatus) -> None:
        error = error_with_source(status)
        super().__init__(f"job {status.job_id} {status.state.word}" + (f": {error}" if error else ""))
        self.status = status

    @property
    def job_id(self) -> str:
        return self.status.job_id


class JobAlreadyExists(AlreadyExists):
    """A live job has the same name, and the caller did not adopt it."""


class ControllerUnreachable(Unavailable):
    """The controller does not answer. If `was_connected`, it answered earlier, and its jobs probably continue."""

    def __init__(self, message: str, *, was_connected: bool) -> None:
        super().__init__(message)
        self.was_connected = was_connected
