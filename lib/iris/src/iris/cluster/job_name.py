"""Names of jobs and tasks: `/user/job`, `/user/job/child`, and for a task its index, `/user/job/0`."""

from dataclasses import dataclass

from iris.domain.ids import validate_name
from rigging.errors import InvalidRequest


@dataclass(frozen=True, slots=True, order=True)
class JobName:
    """The name of a job, or of a task when the last part is a number. `str()` gives the id the cluster uses."""

    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise InvalidRequest(f"job name '/{'/'.join(self.parts)}' is incomplete: expected /user/job")
        # Only the last part may be a number: it is the index of a task.
        has_index = self.is_task and len(self.parts) > 2
        for part in self.parts[:-1] if has_index else self.parts:
            validate_name(part)

    @staticmethod
    def from_string(text: str) -> "JobName":
        """Parse `/user/job[/child...][/index]`. Raises InvalidRequest on anything else."""
        if not text.startswith("/"):
            raise InvalidRequest(f"job name {text!r} must start with '/': expected /user/job")
        return JobName(tuple(text[1:].split("/")))

    @staticmethod
    def root(user: str, name: str) -> "JobName":
        """The name of a job of its own."""
        validate_name(name)
        return JobName((user, name))

    def child(self, name: str) -> "JobName":
        """The name of a job submitted from inside this one."""
        validate_name(name)
        return JobName((*self._job_parts(), name))

    def task(self, index: int) -> "JobName":
        """The name of this job's task `index`."""
        return JobName((*self._job_parts(), str(index)))

    def _job_parts(self) -> tuple[str, ...]:
        if self.is_task:
            raise InvalidRequest(f"{self} is a task; only a job has children and tasks")
        return self.parts

    @property
    def is_task(self) -> bool:
        return self.parts[-1].isascii() and self.parts[-1].isdigit()

    @property
    def task_index(self) -> int | None:
        """The task's index; None for a job."""
        return int(self.parts[-1]) if self.is_task else None

    @property
    def job(self) -> "JobName":
        """The job itself, or the job that a task belongs to."""
        return JobName(self.parts[:-1]) if self.is_task else self

    @property
    def parent(self) -> "JobName | None":
        """The job a task or child job belongs to; None for a root job."""
        return JobName(self.parts[:-1]) if len(self.parts) > 2 else None

    @property
    def user(self) -> str:
        return self.parts[0]

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1]

    def __str__(self) -> str:
        return "/" + "/".join(self.parts)
