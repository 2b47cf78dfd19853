"""Errors of jobs and actors, the same for every backend."""

from rigging.errors import AlreadyExists, Unavailable
from rigging.errors import JobFailed as AnyJobFailed


class JobFailed(AnyJobFailed):
    """A job ended without success; the message names the job, the cause and, where there is one, the log.

    `job_id` and `exit_code` (negative for a signal, as in `subprocess`) are None where they are not known.
    """

    def __init__(self, message: str, *, job_id: str | None = None, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.exit_code = exit_code


class JobAlreadyExists(AlreadyExists):
    """A live job has this name already."""


class ActorLost(Unavailable):
    """The actor's process ended before the call was answered, or has ended for good; the message names the actor.

    Whether the method has run, and how far, is not known.
    """
