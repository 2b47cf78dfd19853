"""Reads the environment variables that describe the current task."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from iris.cluster.own_log import streams_of_log
from iris.domain.runtime import DEFAULT_RUNTIME, TaskRuntime, parse_runtime
from rigging.errors import InvalidRequest

PORT_PREFIX = "IRIS_PORT_"


@dataclass(frozen=True, slots=True)
class JobEnv:
    """The job, task and attempt of this process.

    Args:
        job_id: "/user/job". task_id: "/user/job/0". attempt_id: "/user/job/0:1".
        extras, pip_packages, bundle_digest: Properties of the job that child jobs inherit.
        work_dir: The working directory of its worker.
        ports: The allocated ports, by name.
        workspace_dir: The folder with the files of its workspace; empty without one.
        runtime: The runtime of the job, which child jobs inherit.
    """

    controller_address: str
    job_id: str
    task_id: str
    attempt_id: str
    worker_id: str
    token_file: str
    work_dir: str = ""
    bundle_digest: str = ""
    num_tasks: int = 1
    extras: tuple[str, ...] = ()
    pip_packages: tuple[str, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict, hash=False)
    workspace_dir: str = ""
    runtime: TaskRuntime = DEFAULT_RUNTIME

    @property
    def task_attempt(self) -> int:
        """The number of this attempt, from 0."""
        return int(self.attempt_id.rpartition(":")[2])


def job_env(environ: Mapping[str, str]) -> JobEnv | None:
    """Return the identity of this process; None outside a job. Raise InvalidRequest if the variables are damaged."""
    job_id, address = environ.get("IRIS_JOB_ID"), environ.get("IRIS_CONTROLLER_ADDRESS")
    if not job_id or not address:
        return None
    return JobEnv(
        controller_address=address,
        job_id=job_id,
        task_id=environ.get("IRIS_TASK_ID", f"{job_id}/0"),
        attempt_id=environ.get("IRIS_ATTEMPT_ID", f"{job_id}/0:0"),
        worker_id=environ.get("IRIS_WORKER_ID", ""),
        token_file=environ.get("IRIS_TOKEN_FILE", ""),
        work_dir=environ.get("IRIS_WORK_DIR", ""),
        bundle_digest=environ.get("IRIS_BUNDLE_DIGEST", ""),
        num_tasks=int(environ.get("IRIS_NUM_TASKS", "1")),
        extras=_words(environ, "IRIS_EXTRAS"),
        pip_packages=_words(environ, "IRIS_PIP_PACKAGES"),
        ports={
            name.removeprefix(PORT_PREFIX).lower(): int(value)
            for name, value in environ.items()
            if name.startswith(PORT_PREFIX) and value.isdigit()
        },
        workspace_dir=environ.get("IRIS_WORKSPACE_DIR", ""),
        runtime=parse_runtime(environ.get("IRIS_RUNTIME", ""), "IRIS_RUNTIME"),
    )


def _words(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = environ.get(name, "")
    if not text:
        return ()
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidRequest(f"{name}={text!r} is not a JSON list of strings")
    return tuple(words)


def shown_already(job_id: str, environ: Mapping[str, str]) -> frozenset[bool]:
    """Return the streams (False: stdout, True: stderr) on which this process should not print a job's lines.

    A job's follower also sees the lines of its child jobs. If a job printed its child's lines to its own log, every
    line would appear twice, and four times at the next depth. Output to a file or a pipe gets the lines.
    """
    try:
        inside = job_env(environ)
    except InvalidRequest:
        return frozenset()
    return streams_of_log(environ) if inside is not None and job_id.startswith(inside.job_id + "/") else frozenset()
