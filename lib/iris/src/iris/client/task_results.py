"""Return values of a job's callables, made again where the job is waited for."""

from collections.abc import Sequence

from iris.client.connection.connection import Connection
from iris.client.types import JobStatus
from iris.domain.ids import user_of
from iris.rpc import iris_pb2 as pb
from rigging.errors import NotFound
from rigging.results import ResultUnavailable, unpack_result


def fetch_results(connection: Connection, user: str, status: JobStatus) -> Sequence[object]:
    """Return what each task of a job that succeeded returned, in their order.

    Args:
        connection: To the controller.
        user: Whose processes are trusted: unpickling runs code, so only results of this user's own jobs are made.
        status: Of the job.

    Raises:
        InvalidRequest: The job runs a command.
        ResultUnavailable: One of them cannot be had.
    """
    what = f"job {status.job_id}"
    if user_of(status.job_id) != user:
        raise ResultUnavailable(f"the result of {what} is for processes of {user_of(status.job_id)}, not of {user}")
    packed = [_fetch(connection, status, index) for index in range(status.replicas)]
    several = len(packed) > 1
    return [
        unpack_result(data, f"task {index} of {what}" if several else what) if data else None
        for index, data in enumerate(packed)
    ]


def _fetch(connection: Connection, status: JobStatus, index: int) -> bytes:
    """The packed value of one task; empty for None."""
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
