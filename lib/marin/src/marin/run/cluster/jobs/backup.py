"""The jobs of a cluster to submit again after a restart."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from marin.run.submit.submission import ENTRYPOINT_METADATA

_LIVE: Final = frozenset({"PENDING", "RUNNING"})
_CODE: Final = "gcs://"


@dataclass(frozen=True, slots=True)
class SavedJob:
    """A job to submit again.

    Args:
        body: The request that submits it.
        package: The name of its working directory on the head; empty without one, or if it is in a bucket.
    """

    body: Mapping[str, Any]
    package: str = ""

    @property
    def job_id(self) -> str:
        return str(self.body["submission_id"])


@dataclass(frozen=True, slots=True)
class LostJob:
    """A running job that cannot be submitted again."""

    job_id: str
    reason: str


def select_jobs(described: Iterable[Mapping[str, Any]]) -> tuple[list[SavedJob], list[LostJob]]:
    """Return the jobs to submit again, in submission order, and the jobs that cannot be submitted again.

    Ended jobs are not submitted again.

    Args:
        described: All jobs as listed by Ray's Jobs API.
    """
    saved: list[SavedJob] = []
    lost: list[LostJob] = []
    for job in sorted(described, key=lambda each: each.get("start_time") or 0):
        if job.get("status") not in _LIVE:
            continue
        job_id = job.get("submission_id")
        runtime_env = job.get("runtime_env") or {}
        if job.get("type") != "SUBMISSION" or not job_id:
            lost.append(LostJob(str(job_id or job.get("job_id")), "it connected to the cluster without a submission"))
        elif any(str(each).startswith(_CODE) for each in runtime_env.get("py_modules") or ()):
            lost.append(LostJob(str(job_id), "its py_modules are only in the head's memory"))
        else:
            saved.append(_saved(job, runtime_env))
    return saved, lost


def with_package(job: SavedJob, uri: str) -> SavedJob:
    """Return the job with another working directory."""
    return SavedJob({**job.body, "runtime_env": {**job.body["runtime_env"], "working_dir": uri}})


def _saved(job: Mapping[str, Any], runtime_env: Mapping[str, Any]) -> SavedJob:
    working_dir = str(runtime_env.get("working_dir") or "")
    metadata = job.get("metadata") or {}
    body = {
        "entrypoint": job["entrypoint"],
        "submission_id": job["submission_id"],
        # Names that begin with _ are Ray's own notes.
        "runtime_env": {key: value for key, value in runtime_env.items() if not key.startswith("_")},
        "metadata": dict(metadata),
        **_entrypoint(metadata),
    }
    return SavedJob(body, working_dir.removeprefix(_CODE) if working_dir.startswith(_CODE) else "")


def _entrypoint(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the resources of the entrypoint. Ray does not list them, so they are known only for jobs of `ray_run`."""
    try:
        found = json.loads(metadata.get(ENTRYPOINT_METADATA, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
