"""The exceptions of failed callables, made again where their job is waited for."""

import pickle
import sys
from typing import Final

from iris.client.connection.connection import Connection
from iris.client.types import JobStatus
from iris.cluster.types import JobState
from iris.domain.ids import user_of
from iris.rpc import iris_pb2 as pb
from rigging.errors import MarinError
from rigging.exception_parts import put_together

_PYTHON: Final = b"%d.%d" % sys.version_info[:2]


def fetch_exception(connection: Connection, user: str, status: JobStatus) -> BaseException | None:
    """Return the exception of a failed job's callable; None where it cannot be had: the job's error describes it.

    Args:
        connection: To the controller.
        user: Whose processes are trusted: unpickling runs code, so only exceptions of this user's own jobs are made.
        status: Of the job.
    """
    if status.state is not JobState.FAILED or not status.deciding_task_id or user_of(status.job_id) != user:
        return None
    request = pb.GetExceptionRequest(job_id=status.job_id, submitted_at_ms=status.submitted_at_ms)
    try:
        reply = connection.ask(lambda c: c.jobs.GetException, request, retry=False)
    except MarinError:  # the job's failure is the news, not that nothing more is known; or an older controller
        return None
    return load_exception(reply.exception)


def load_exception(data: bytes) -> BaseException | None:
    """Make an exception of what `iris.worker.callable_main.pickle_exception` wrote; None when that fails.

    Only for bytes of the same user's jobs.
    """
    python, _, pickled = data.partition(b"\n")
    if python != _PYTHON:
        return None  # classes may hold bytecode, which another version cannot read
    try:
        found = pickle.loads(pickled)  # noqa: S301 - see above
        if isinstance(found, tuple):
            found = put_together(*found)
    except (Exception, SystemExit):  # whatever a class does when it is made again
        return None
    return found if isinstance(found, BaseException) else None
