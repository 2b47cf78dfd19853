"""Ids: job `/user/name[/child...]`, its tasks `{job}/{index}`, their attempts `{task}:{attempt}`."""

import re
from typing import NewType

from rigging.errors import InvalidRequest

JobId = NewType("JobId", str)
TaskId = NewType("TaskId", str)
AttemptId = NewType("AttemptId", str)
WorkerId = NewType("WorkerId", str)
EndpointId = NewType("EndpointId", str)

_PART = re.compile(r"[A-Za-z0-9_.@+=-]{1,128}")
_ALLOWED = "1 to 128 of A-Z a-z 0-9 _ . @ + = -, not digits alone"
_MAX_DEPTH = 64


def validate_name(name: str) -> str:
    """Return `name` if it is valid as a part of a job id.

    Raises:
        InvalidRequest: The name is empty, too long, has invalid characters, or is digits only (digits name tasks).
    """
    if _PART.fullmatch(name) is None or name.isdigit() or name in (".", ".."):
        raise InvalidRequest(f"{name!r} is not a valid name of a job or user; allowed are {_ALLOWED}")
    return name


def validate_job_id(text: str) -> JobId:
    """Return `text` as a job id.

    Raises:
        InvalidRequest: The text does not have the form `/user/name[/child...]` with valid parts.
    """
    parts = text.split("/")
    if len(parts) < 3 or parts[0]:
        raise InvalidRequest(f"{text!r} is not a job id; the form is /user/name[/child...]")
    if len(parts) > _MAX_DEPTH:
        raise InvalidRequest(f"job id {text[:80]!r}... has {len(parts) - 1} parts; at most {_MAX_DEPTH - 1} may be")
    for part in parts[1:]:
        try:
            validate_name(part)
        except InvalidRequest as error:
            raise InvalidRequest(f"job id {text!r}: {error}") from None
    return JobId(text)


def parent_of(job_id: JobId) -> JobId | None:
    """Return the parent of `job_id`; None for a root job (`/user/name`)."""
    head, _, _ = job_id.rpartition("/")
    return JobId(head) if head.count("/") >= 2 else None


def user_of(name: str) -> str:
    """Return the user in an id or full name ("/ann/job/0", "/ann"): its first part."""
    return name.split("/", 2)[1]


def tree_of(job_id: JobId) -> str:
    """Return the root job of a job's tree: "/user/root" for "/user/root/child"."""
    return "/".join(job_id.split("/", 3)[:3])


def is_below(job_id: JobId, ancestor: JobId) -> bool:
    """Return whether `job_id` is a descendant of `ancestor`. A job is not below itself."""
    return job_id.startswith(ancestor + "/")


def task_id(job_id: JobId, index: int) -> TaskId:
    """Return the id of task `index` (from 0) of a job."""
    return TaskId(f"{job_id}/{index}")


def attempt_id(task: TaskId, number: int) -> AttemptId:
    """Return the id of attempt `number` (from 0, only growing) of a task."""
    return AttemptId(f"{task}:{number}")


def parse_task_id(text: str) -> tuple[JobId, int]:
    """Split a task id into its job and index.

    Raises:
        InvalidRequest: The text does not have the form `/user/name[/child...]/index`.
    """
    job, _, index = text.rpartition("/")
    if not (index.isascii() and index.isdigit()) or job.count("/") < 2:
        raise InvalidRequest(f"{text!r} is not a task id; the form is /user/name[/child...]/index, e.g. /ann/train/0")
    return JobId(job), int(index)


def parse_attempt_id(text: str) -> tuple[TaskId, int]:
    """Split an attempt id into its task and number.

    Raises:
        InvalidRequest: The text does not have the form `{task id}:{attempt}`.
    """
    task, _, number = text.rpartition(":")
    if not (number.isascii() and number.isdigit()) or not task:
        raise InvalidRequest(f"{text!r} is not an attempt id; the form is /user/name[/child...]/index:attempt")
    return TaskId(task), int(number)


def is_task_id(text: str) -> bool:
    """Return whether `text` names a task rather than a job (job names are never digits only)."""
    return text.rpartition("/")[2].isdigit() and text.count("/") >= 3
