"""Errors of the client, besides those of rigging.errors that a refused call raises."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from iris.client.source_lines import error_with_source
from iris.client.types import JobStatus
from rigging.errors import AlreadyExists, JobFailed, MarinError, Unavailable

if TYPE_CHECKING:
    from iris.client.job import Job


class JobFailedError(JobFailed):
    """A job that was waited for ended without success; `status` is its final status."""

    def __init__(self, status: JobStatus) -> None:
        error = error_with_source(status)
        super().__init__(f"job {status.job_id} {status.state.word}" + (f": {error}" if error else ""))
        self.status = status

    @property
    def job_id(self) -> str:
        return self.status.job_id


class JobAlreadyExists(AlreadyExists):
    """A live job of that name exists, and it was not to be adopted."""


class SomeRefused(MarinError):
    """Of several jobs submitted together some were refused; the others are stored.

    Attributes:
        errors: Why, by the place of the plan. jobs: By place, too; None where it was refused.
    """

    def __init__(self, errors: Mapping[int, MarinError], jobs: "Sequence[Job | None]") -> None:
        first, why = next(iter(errors.items()))
        super().__init__(f"{len(errors)} of {len(jobs)} jobs were refused; the first (place {first}): {why}")
        self.errors = errors
        self.jobs = jobs


class ControllerUnreachable(Unavailable):
    """The controller does not answer. `was_connected`: it did earlier, so the jobs there may well go on."""

    def __init__(self, message: str, *, was_connected: bool) -> None:
        super().__init__(message)
        self.was_connected = was_connected
