"""Unpack jobs' working directories on a cluster's head, to copy them from there.

If a job's process runs elsewhere or has not started, its directory is only in the cluster's memory, packed.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable
from typing import Final

from marin.run.cluster.jobs.backup import SavedJob
from marin.run.submit.jobs_api import JobInfo, JobsApi
from rigging.errors import Conflict

_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.5
JOB_PREFIX: Final = "marin-unpack-"


async def unpack_on_head(api: JobsApi, jobs: Iterable[SavedJob], *, seconds: float = _SECONDS) -> None:
    """Make Ray unpack working directories on the head, each for a separate job that does nothing.

    Args:
        api: The cluster's Jobs API.
        jobs: The jobs whose working directories to unpack.
        seconds: Timeout for each.

    Raises:
        Conflict: A directory cannot be unpacked. The message names its jobs.
    """
    owners: dict[str, list[str]] = {}
    for job in jobs:
        if job.package:
            owners.setdefault(job.package, []).append(job.job_id)
    for package, names in owners.items():
        ended = await _run(api, package, seconds)
        if ended is None or ended.status != "SUCCEEDED":
            why = f"not in {seconds:g} s" if ended is None else ended.message or ended.status
            raise Conflict(f"the working directory of {', '.join(names)} cannot be unpacked on the head: {why}")


async def _run(api: JobsApi, package: str, seconds: float) -> JobInfo | None:
    body = {
        "entrypoint": "true",
        "submission_id": f"{JOB_PREFIX}{secrets.token_hex(8)}",
        "runtime_env": {"working_dir": f"gcs://{package}"},
    }
    job_id = await api.submit(body)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        info = await api.info(job_id)
        if info.ended:
            return info
        await asyncio.sleep(_LOOK_SECONDS)
    await api.stop(job_id)
    return None
