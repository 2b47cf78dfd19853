"""Values sent between a client and Ray's worker processes. Imports neither side, nor ray."""

from collections.abc import Mapping
from typing import Any, NamedTuple

NAMESPACE_ENV = "FRAY_RAY_NAMESPACE"
PARENT_ENV = "FRAY_RAY_PARENT"


class JobEnvironment(NamedTuple):
    """The environment of a job's process. Many jobs share one.

    Args:
        namespace: The Ray namespace of the session.
        address: The cluster's address.
        late_env: Variables to set when the job begins.
        workspace: The working directory, if it exists there.
        packages: Requirements to install before the job begins.
        uses_tpu: Whether the job holds a TPU.
    """

    namespace: str
    address: str
    late_env: Mapping[str, str]
    workspace: str | None
    packages: tuple[str, ...]
    uses_tpu: bool


class TaskPayload(NamedTuple):
    """The input of every task of a job.

    Args:
        environment: The environment of the tasks.
        entry: The pickled entry point, or a reference to it if it is large.
    """

    environment: JobEnvironment
    entry: Any

    def with_env(self, env: Mapping[str, str]) -> "TaskPayload":
        """Return a copy with more variables."""
        return TaskPayload(self.environment._replace(late_env={**self.environment.late_env, **env}), self.entry)


class Work(NamedTuple):
    """The work of a task: one replica of one attempt of a job."""

    job_id: str
    attempt: int
    replica: int
    environment: JobEnvironment

    @staticmethod
    def of_task(name: str, environment: JobEnvironment) -> "Work":
        """Return the work for a task's name (see `task_name`)."""
        job_id, attempt, replica = name.rsplit("/", 2)
        return Work(job_id, int(attempt), int(replica), environment)


def task_name(job_id: str, attempt: int, replica: int) -> str:
    """Return the name of the Ray task of one replica. It identifies the replica to the worker.

    An argument would cost a tenth of a small task's processor time (see `TaskLauncher`).

    Args:
        job_id: The job.
        attempt: Number of its attempt, from 0.
        replica: Index of the replica.
    """
    return f"{job_id}/{attempt}/{replica}"


class TaskResult(NamedTuple):
    """A worker's answer after running a job or a call.

    Args:
        error: The pickled exception; None if there was none or it cannot be pickled.
        summary: Type and message of the exception; None on success.
        trace: Its traceback, as text.
        exit_code: The exit code of a program, or of a callable that called sys.exit().
        output: Output that was not reported yet.
        reported: Whether the session knows the job and has its earlier output.
        value: The callable's return value, packed (`rigging.results`); None for None.
    """

    error: bytes | None = None
    summary: str | None = None
    trace: str = ""
    exit_code: int | None = None
    output: bytes = b""
    reported: bool = False
    value: bytes | None = None
