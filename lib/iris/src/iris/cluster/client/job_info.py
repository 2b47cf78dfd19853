"""Information about the current task and its job."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from iris.client.job_env import job_env
from iris.cluster.job_name import JobName


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The job, task and attempt of this process, with ports by lowercase name."""

    task_id: JobName
    num_tasks: int
    attempt_id: int
    worker_id: str
    controller_address: str
    bundle_id: str = ""
    extras: tuple[str, ...] = ()
    pip_packages: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def job_id(self) -> JobName:
        """The job."""
        return self.task_id.job

    @property
    def task_index(self) -> int:
        """The task's index in its job."""
        return self.task_id.require_task()[1]


def get_job_info(environ: Mapping[str, str] | None = None) -> JobInfo | None:
    """Return the job, task and attempt of this process; None outside a job.

    Args:
        environ: The variables to read; None for `os.environ`.
    """
    job = job_env(os.environ if environ is None else environ)
    if job is None:
        return None
    return JobInfo(
        task_id=JobName(job.task_id),
        num_tasks=job.num_tasks,
        attempt_id=job.task_attempt,
        worker_id=job.worker_id,
        controller_address=job.controller_address,
        bundle_id=job.bundle_digest,
        extras=job.extras,
        pip_packages=job.pip_packages,
        ports=job.ports,
    )
