"""Job and task ids as users type them, with or without "/user/" in front."""

import contextlib
import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from iris.domain.ids import user_of
from rigging.errors import Denied, MarinError, NotFound

if TYPE_CHECKING:
    from iris.client import IrisClient, JobStatus

_SEARCHED = 1000


def find_job(client: "IrisClient", text: str) -> "JobStatus":
    """Return the status of the job with this id or name.

    Raises:
        NotFound: The job does not exist. The message suggests similar names, or says that `text` is a task.
    """
    found = _named(client, text)
    if found is None:
        raise NotFound(_a_task(client, text) or _nothing_named(client, text))
    return found


def find_jobs(client: "IrisClient", texts: Sequence[str]) -> "tuple[list[JobStatus], list[str], list[MarinError]]":
    """Return the existing jobs without duplicates, the ids that may not be read, and the errors for the other names.

    Names that exist as typed take one call together.
    """
    guesses = [candidates[0] for text in texts if (candidates := _candidates(client, text))]
    if len(guesses) == len(texts) > 1:
        with contextlib.suppress(NotFound, Denied):
            statuses, _ = client.poll_jobs(list(dict.fromkeys(guesses)))
            return statuses, [], []
    found: dict[str, JobStatus] = {}
    denied: list[str] = []
    wrong: list[MarinError] = []
    for text in texts:
        try:
            status = find_job(client, text)
        except Denied as error:
            if text.startswith("/"):
                denied.append(text.rstrip("/"))
            else:
                wrong.append(error)
        except NotFound as error:
            wrong.append(error)
        else:
            found[status.job_id] = status
    return list(found.values()), denied, wrong


def find_job_or_task(client: "IrisClient", text: str) -> tuple["JobStatus", str]:
    """Return the named job, and the full id of the job or of one of its tasks.

    Raises:
        NotFound: The job or the task does not exist.
    """
    head, index = _task_of(text)
    if index is None:
        status = find_job(client, text)
        return status, status.job_id
    status = find_job(client, head)
    if index >= status.replicas:
        raise NotFound(f"job {status.job_id} has no task {index}; its tasks are 0 to {status.replicas - 1}")
    return status, f"{status.job_id}/{index}"


def _task_of(text: str) -> tuple[str, int | None]:
    """Return the job and index if `text` may name a task; None otherwise."""
    head, _, last = text.rstrip("/").rpartition("/")
    # Of other digits than these `int` takes some and refuses some ("²").
    return head, int(last) if head and last.isascii() and last.isdigit() else None


def _named(client: "IrisClient", text: str) -> "JobStatus | None":
    for candidate in _candidates(client, text):
        with contextlib.suppress(NotFound):
            return client.status(candidate)
    return None


def _a_task(client: "IrisClient", text: str) -> str:
    """Return a sentence that says that `text` is a task; empty if it is not."""
    head, index = _task_of(text)
    with contextlib.suppress(Denied):
        status = _named(client, head) if index is not None else None
        if status is not None and index is not None and index < status.replicas:
            task = f"{status.job_id}/{index}"
            return f"{text!r} is a task; name its job, {status.job_id} (`iris job logs {task}` shows the task's output)"
    return ""


def _candidates(client: "IrisClient", text: str) -> list[str]:
    text = text.rstrip("/")
    if text.startswith("/"):
        return [text] if text.count("/") > 1 else []
    below = client.full_name_prefix()
    guesses = [f"{below}/{text}", f"/{user_of(below)}/{text}"] + ([f"/{text}"] if "/" in text else [])
    return [guess for i, guess in enumerate(guesses) if guess not in guesses[:i] and " " not in guess]


def _nothing_named(client: "IrisClient", text: str) -> str:
    wanted = text.rstrip("/").rpartition("/")[2]
    by_name: dict[str, str] = {}
    for job in client.list_jobs(limit=_SEARCHED):
        by_name.setdefault(job.job_id, job.job_id)
        by_name.setdefault(job.job_id.rpartition("/")[2], job.job_id)
    matches = difflib.get_close_matches(wanted, by_name, n=3, cutoff=0.6)
    # A prefix is how people remember names that end in a date.
    matches += [name for name in by_name if wanted and name.startswith(wanted)][:3]
    near = list(dict.fromkeys(by_name[name] for name in matches))[:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`iris job list` shows what there is"
    return f"no job {text!r}; {hint}"
