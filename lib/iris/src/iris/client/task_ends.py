"""Restores the results and exceptions of a job's callables in the waiting process."""

import pickle
import sys
from collections.abc import Sequence
from typing import Final

from iris.client.connection.connection import Connection
from iris.client.types import JobStatus
from iris.cluster.types import JobState
from iris.domain.ids import user_of
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import MarinError, NotFound
from rigging.process.exception_parts import put_together
from rigging.results import ResultUnavailable, unpack_result

_PYTHON: Final = b"%d.%d" % sys.version_info[:2]


def fetch_exception(connection: Connection, user: str, status: JobStatus) -> BaseException | None:
    """Return the exception of a failed job's callable; None if it is not available. The job's error describes it, too.

    Args:
        connection: The connection to the controller.
        user: The trusted user. Unpickling runs code, so only exceptions of this user's own jobs are restored.
        status: The job's status.
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
    """Restore an exception from `iris.worker.callable_main.pickle_exception`; return None if that fails.

    Use this only for bytes of the same user's jobs.
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


def fetch_results(connection: Connection, user: str, status: JobStatus) -> Sequence[object]:
    """Return the return values of a successful job's tasks, in task order.

    Args:
        connection: The connection to the controller.
        user: The trusted user. Unpickling runs code, so only results of this user's own jobs are restored.
        status: The job's status.

    Raises:
        InvalidRequest: The job runs a command.
        ResultUnavailable: A result is not available.
    """
    what = f"job {status.job_id}"
    if user_of(status.job_id) != user:
        raise ResultUnavailable(
            f"the result of {what} is only for processes of {user_of(status.job_id)}, not of {user}"
        )
    packed = [_fetch(connection, status, index) for index in range(status.replicas)]
    several = len(packed) > 1
    return [
        unpack_result(data, f"task {index} of {what}" if several else what) if data else None
        for index, data in enumerate(packed)
    ]


def _fetch(connection: Connection, status: JobStatus, index: int) -> bytes:
    """Return the packed value of one task; empty for None."""
    pieces: list[bytes] = []
    size = 0
    while True:
        request = pb.GetResultRequest(
            job_id=status.job_id, submitted_at_ms=status.submitted_at_ms, task_index=index, offset=size
        )
        try:
            reply = connection.ask(lambda c: c.jobs.GetResult, request)
        except NotFound as error:
            raise ResultUnavailable(str(error)) from error
        pieces.append(reply.data)
        size += len(reply.data)
        if size >= reply.size or not reply.data:
            return b"".join(pieces)
