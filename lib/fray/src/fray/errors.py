"""Errors of jobs and actors, on every backend."""

from typing import TYPE_CHECKING, Any

from fray.types import JobStatus
from rigging.errors import AlreadyExists, Unavailable
from rigging.errors import JobFailed as AnyJobFailed
from rigging.results import ResultUnavailable

if TYPE_CHECKING:
    from fray.protocols import JobHandle

__all__ = ["ActorLost", "JobAlreadyExists", "JobFailed", "ResultUnavailable"]


class JobFailed(AnyJobFailed):
    """A job ended without success. The message names the job, the cause and, where available, the log.

    `job_id` and `exit_code` (negative for a signal, as in `subprocess`) are None where unknown. `failed_status` is the
    final status. `was_preempted` means that it was preempted more often than its retries allow. `JobFailed(job_id,
    status)` composes the message.

    Args:
        message: The message. Or, without `job_id` and followed by a status, the job's id.
        status: The final status; None for `JobStatus.FAILED`.
        job_id: The job.
        exit_code: Its exit code.
        was_preempted: Whether it was preempted too often.
    """

    def __init__(
        self,
        message: str = "",
        status: JobStatus | None = None,
        *,
        job_id: str | None = None,
        exit_code: int | None = None,
        was_preempted: bool = False,
    ) -> None:
        if status is not None and (not message or job_id is None):
            job_id = job_id or message
            message = f"job {job_id} ended as {status}"
        super().__init__(message)
        self.job_id = job_id
        self.exit_code = exit_code
        self.was_preempted = was_preempted
        self.failed_status = JobStatus.FAILED if status is None else status


class JobAlreadyExists(AlreadyExists):
    """A live job already has this name.

    `handle` is that job's handle; None if there is none, for example after pickling.

    Args:
        message: The message. Or, without `job_name` and followed by a handle, the job's name.
        handle: The live job.
        job_name: The name that is taken.
    """

    def __init__(self, message: str = "", handle: "JobHandle | None" = None, *, job_name: str | None = None) -> None:
        if job_name is None:
            job_name = message
            message = message if handle is None else f"job {message!r} already exists"
        super().__init__(message or f"job {job_name!r} already exists")
        self.handle = handle
        self.job_name = job_name

    def __reduce__(self) -> tuple[Any, ...]:
        # A handle belongs to its process.
        return type(self), self.args, {"job_name": self.job_name}


class ActorLost(Unavailable):
    """The actor's process ended before it answered the call, or the actor has ended for good. The message names it.

    It is unknown whether, or how far, the method ran.
    """
