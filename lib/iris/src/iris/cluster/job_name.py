"""Names of jobs and tasks: `/user/job`, `/user/job/child`, and for a task its index, `/user/job/0`."""

from collections.abc import Iterable

from iris.domain.ids import validate_name
from rigging.errors import InvalidRequest


class JobName(str):
    """The name of a job, or of a task if the last part is a number. Its text is the cluster's id.

    `JobName(("ann", "train"))` is `JobName("/ann/train")`.
    """

    __slots__ = ()

    def __new__(cls, parts: Iterable[str] | str) -> "JobName":
        """Validate the name. Raise InvalidRequest."""
        if isinstance(parts, str):
            if not parts.startswith("/"):
                raise InvalidRequest(f"job name {parts!r} must start with '/': expected /user/job")
            parts = parts[1:].split("/")
        parts = tuple(parts)
        made = super().__new__(cls, "/" + "/".join(parts))
        if len(parts) < 2:
            raise InvalidRequest(f"job name {str(made)!r} is incomplete: expected /user/job")
        # Only the last part may be a number: it is the index of a task.
        has_index = made.is_task and len(parts) > 2
        for part in parts[:-1] if has_index else parts:
            validate_name(part)
        return made

    def __repr__(self) -> str:
        return f"JobName({str(self)!r})"

    @staticmethod
    def from_string(text: str) -> "JobName":
        """Parse `/user/job[/child...][/index]`. Raise InvalidRequest for other texts."""
        return JobName(text)

    @staticmethod
    def from_wire(text: str) -> "JobName":
        """Parse the result of `to_wire`, like `from_string`."""
        return JobName(text)

    @classmethod
    def known(cls, text: str) -> "JobName":
        """Return a name from the cluster without validation."""
        return str.__new__(cls, text)

    @staticmethod
    def root(user: str, name: str) -> "JobName":
        """Return the name of a root job."""
        validate_name(name)
        return JobName((user, name))

    def child(self, name: str) -> "JobName":
        """Return the name of a job submitted inside this one."""
        validate_name(name)
        return JobName((*self._job_parts(), name))

    def task(self, index: int) -> "JobName":
        """Return the name of this job's task `index`."""
        return JobName((*self._job_parts(), str(index)))

    def _job_parts(self) -> tuple[str, ...]:
        if self.is_task:
            raise InvalidRequest(f"{self} is a task; only a job has children and tasks")
        return self.parts

    @property
    def parts(self) -> tuple[str, ...]:
        """Its parts, starting with the user."""
        return tuple(self[1:].split("/"))

    @property
    def is_task(self) -> bool:
        """Whether the last part is a number."""
        return self.name.isascii() and self.name.isdigit()

    @property
    def task_index(self) -> int | None:
        """The task's index; None for a job."""
        return int(self.name) if self.is_task else None

    @property
    def job(self) -> "JobName":
        """The job, or the job of a task."""
        return JobName(self.parts[:-1]) if self.is_task else self

    @property
    def parent(self) -> "JobName | None":
        """The job of a task or the parent of a child job; None for a root job."""
        parts = self.parts
        return JobName(parts[:-1]) if len(parts) > 2 else None

    @property
    def root_job(self) -> "JobName":
        """The root of this job's tree."""
        return JobName(self.parts[:2])

    @property
    def namespace(self) -> str:
        """The namespace of its endpoints: the name of its root job, as text."""
        return str(self.root_job)

    @property
    def depth(self) -> int:
        """The number of jobs in its name: 1 for a root job and its tasks, 2 for a child job."""
        return len(self.job.parts) - 1

    @property
    def user(self) -> str:
        """The first part."""
        return self.parts[0]

    @property
    def name(self) -> str:
        """The last part."""
        return self.rpartition("/")[2]

    def is_ancestor_of(self, other: "JobName", *, include_self: bool = True) -> bool:
        """Return whether `other` is below this job or, with `include_self`, is this job."""
        return (include_self and str(other) == str(self)) or other.startswith(f"{self}/")

    def require_task(self) -> tuple["JobName", int]:
        """Return the job and index of a task. Raise InvalidRequest for a job."""
        index = self.task_index
        if index is None:
            raise InvalidRequest(f"{self} is a job; expected a task such as {self}/0")
        return self.job, index

    def to_wire(self) -> str:
        """Return the name as text."""
        return str(self)

    def to_safe_token(self) -> str:
        """Return the name in a form for names of files and containers."""
        return "job__" + "__".join(self.parts)
