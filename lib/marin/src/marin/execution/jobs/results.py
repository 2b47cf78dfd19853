"""Store a step's return value under its lease, with retries. Failures are logged and do not fail the step."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from functools import partial
from typing import Any, Protocol

from marin.execution.artifact import artifact_bytes, artifact_path, write_artifact
from marin.full_disk import full_disk
from marin.output_files import ARTIFACT_FILE
from rigging.distributed_lock import LeaseLostError
from rigging.errors import InvalidRequest
from rigging.filesystem import read_bytes_or_none, url_to_fs, write_bytes_atomic
from rigging.filesystem.location import path_in
from rigging.lease.objects import RETRY_SECONDS
from rigging.timing import ExponentialBackoff, retry_with_backoff

logger = logging.getLogger(__name__)

_WILL_NOT_PASS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG})


# Set where jobs outlive their submitters and are adopted, which is on Iris.
_JOB_ID = "IRIS_JOB_ID"


class ResultFiles(Protocol):
    """Write files of an output path while the lease on it is held: a `StepLease`, or its `LeaseToken`."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file. Raise LeaseLostError if the lease is lost."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it exists. Raise LeaseLostError if the lease is lost."""
        ...


def keep_result(
    value: Any, output_path: str, files: ResultFiles | None, patience_seconds: float = RETRY_SECONDS
) -> None:
    """Store a step's return value. If it cannot be stored, an error is logged, because the step's work is done.

    Args:
        value: The return value.
        output_path: The step's output path.
        files: Writes under the step's lease; None outside of any run.
        patience_seconds: How long to retry on a full or failing disk. `files` does the same for object stores.

    Raises:
        LeaseLostError: The lease is lost. Nothing is stored.
    """
    content = result_content(value, output_path, files)
    if content is not None:
        keep_content(content, output_path, files, patience_seconds)


def result_content(value: Any, output_path: str, files: ResultFiles | None) -> bytes | None:
    """Return the content of the file for a step's return value; None, after logging an error, if it cannot be stored.

    Arguments and errors are those of `keep_result`.
    """
    try:
        return _content(value)
    except InvalidRequest as error:
        _give_up(error, output_path, files)
        return None


def keep_content(
    content: bytes, output_path: str, files: ResultFiles | None, patience_seconds: float = RETRY_SECONDS
) -> None:
    """Store the result of `result_content`, like `keep_result`.

    Args:
        content: The content of the file.
        output_path: The step's output path.
        files: Writes under the step's lease; None outside of any run.
        patience_seconds: How long to retry failing storage.
    """
    try:
        if files is None:
            write_artifact(
                output_path, lambda name, data: write_bytes_atomic(path_in(output_path, name), data), content
            )
            return
        retry_with_backoff(
            lambda: write_artifact(output_path, files.write, content),
            retryable=lambda error: isinstance(error, OSError) and error.errno not in _WILL_NOT_PASS,
            max_attempts=1000,
            max_elapsed=patience_seconds,
            backoff=ExponentialBackoff(initial=0.05, maximum=2.0, factor=2.0, jitter=0.5),
            on_retry=partial(_tell_trouble, output_path, patience_seconds),
            operation=f"keep the return value of the step at {output_path}",
        )
    except LeaseLostError:
        raise
    # Storage libraries may raise any exception.
    except Exception as error:
        _give_up(error, output_path, files)


def _tell_trouble(output_path: str, patience_seconds: float, error: Exception, attempt: int) -> None:
    """Log once, immediately, that a return value cannot be stored yet."""
    if attempt == 0:
        logger.warning(
            "step at %s: its return value cannot be stored yet; retrying for %g s: %s",
            output_path,
            patience_seconds,
            full_disk(error, output_path) or f"{type(error).__name__}: {error}",
        )


def _give_up(error: Exception, output_path: str, files: ResultFiles | None) -> None:
    logger.error(
        "step at %s is done, but its RETURN VALUE IS NOT STORED, so Artifact.load finds none: %s: %s",
        output_path,
        type(error).__name__,
        full_disk(error, output_path) or error,
    )
    _remove_older(output_path, files)


def keep_result_of_job(value: Any, output_path: str, token: ResultFiles | None) -> bool:
    """Store a step's return value from inside its job, like `keep_result`.

    A job may outlive its run, and the next run may adopt the job and hold the lease. Then the value is stored in a file
    named after the job, which the adopting run takes (`take_result_of_job`).

    Args:
        value: The return value.
        output_path: The step's output path.
        token: Writes under the lease of the run that submitted the job; None outside of any run.

    Returns:
        False if the value was left to another run.

    Raises:
        LeaseLostError: The lease is lost, and no other run can have adopted the job.
    """
    try:
        keep_result(value, output_path, token)
        return True
    except LeaseLostError as error:
        job_id = os.environ.get(_JOB_ID)
        if job_id is None:
            raise
        logger.warning("step at %s: %s; its return value is left to the run that adopted this job", output_path, error)
        try:
            write_bytes_atomic(_file_of_job(output_path, job_id), artifact_bytes(value))
        # As in keep_result: the work is done.
        except Exception as trouble:
            logger.error("step at %s: its return value is not stored: %s", output_path, trouble)
        return False


def take_result_of_job(output_path: str, job_id: str, files: ResultFiles) -> bool:
    """Store the return value left by an adopted job as the step's.

    Args:
        output_path: The step's output path.
        job_id: The job.
        files: Writes under the step's lease.

    Returns:
        Whether the job had left a value.

    Raises:
        LeaseLostError: The lease is lost. Nothing is stored.
    """
    content: bytes | None = None
    try:
        left = _file_of_job(output_path, job_id)
        content = read_bytes_or_none(left)
        if content is None:
            return False
        write_artifact(output_path, files.write, content)
        fs, path = url_to_fs(left)
        fs.rm_file(path)
    except LeaseLostError:
        raise
    # As in keep_result: the work is done.
    except Exception as error:
        logger.error("step at %s: the return value of job %s is not stored: %s", output_path, job_id, error)
    return content is not None


def _file_of_job(output_path: str, job_id: str) -> str:
    return artifact_path(output_path) + "." + hashlib.md5(job_id.encode(), usedforsecurity=False).hexdigest()[:12]


def _content(value: Any) -> bytes:
    try:
        return artifact_bytes(value)
    except InvalidRequest:
        raise
    except Exception as error:  # of the value's own methods
        raise InvalidRequest(
            f"a value of type {type(value).__name__} cannot be stored as JSON ({type(error).__name__}: {error})"
        ) from error


def _remove_older(output_path: str, files: ResultFiles | None) -> None:
    """Remove an earlier attempt's value, which would count as this attempt's."""
    if files is None:
        return
    try:
        files.remove(ARTIFACT_FILE)
    except LeaseLostError:
        raise
    except Exception as error:
        logger.warning("step at %s: cannot check for an earlier %s: %s", output_path, ARTIFACT_FILE, error)
