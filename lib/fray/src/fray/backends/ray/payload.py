"""Values that travel between a client and Ray's worker processes. A leaf: it imports neither side, nor ray."""

from collections.abc import Mapping
from typing import Any, NamedTuple

NAMESPACE_ENV = "FRAY_RAY_NAMESPACE"
PARENT_ENV = "FRAY_RAY_PARENT"


class JobEnvironment(NamedTuple):
    """The surroundings of a job's process; alike for many jobs.

    Args:
        namespace: Ray namespace of the session.
        address: Of the cluster.
        late_env: Variables that are set when the job begins.
        workspace: Where it runs, if that directory is there.
        packages: Requirements to install before it begins.
        uses_tpu: Whether it holds a TPU.
    """

    namespace: str
    address: str
    late_env: Mapping[str, str]
    workspace: str | None
    packages: tuple[str, ...]
    uses_tpu: bool


class TaskPayload(NamedTuple):
    """Everything that the tasks of a job are sent.

    Args:
        environment: Their surroundings.
        entry: The pickled entry point, or a reference to it when it is large.
    """

    environment: JobEnvironment
    entry: Any

    def with_env(self, env: Mapping[str, str]) -> "TaskPayload":
        """The same with more variables."""
        return TaskPayload(self.environment._replace(late_env={**self.environment.late_env, **env}), self.entry)


class Work(NamedTuple):
    """One replica of one attempt of a job."""

    job_id: str
    attempt: int
    replica: int
    environment: JobEnvironment

    @staticmethod
    def of_task(name: str, environment: JobEnvironment) -> "Work":
        """The work of the task of that name (see `task_name`)."""
        job_id, attempt, replica = name.rsplit("/", 2)
        return Work(job_id, int(attempt), int(replica), environment)


def task_name(job_id: str, attempt: int, replica: int) -> str:
    """Name the Ray task of one replica, which is how its worker knows whose it is.

    An argument would say it more plainly, and costs a tenth of a small task's processor time (see `TaskLauncher`).

    Args:
        job_id: The job.
        attempt: Number of its attempt, from 0.
        replica: Index of the replica.
    """
    return f"{job_id}/{attempt}/{replica}"


class TaskResult(NamedTuple):
    """A worker's answer about a job or a call that it ran.

    Args:
        error: The exception, pickled; None when there was none, or it cannot be pickled.
        summary: Type and text of the error; None on success.
        trace: Its traceback, as text.
        exit_code: Of a program, or of a callable that called sys.exit().
        output: Output that was not reported yet.
        reported: Whether the session knows of the job, and has its earlier output.
        value: What the callable returned, packed (`rigging.results`); None for None.
    """

    error: bytes | None = None
    summary: str | None = None
    trace: str = ""
    exit_code: int | None = None
    output: bytes = b""
    reported: bool = False
    value: bytes | None = None
