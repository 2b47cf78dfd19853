"""Wait for the ends of jobs."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from iris.client.connection.calls import JobCalls
from iris.client.connection.connection import Connection
from iris.client.connection.wire import job_status
from iris.client.types import JobStatus
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import DeadlineExceeded, InvalidRequest

_LONG_POLL_SECONDS: Final = 30.0

AwaitedJobs = Sequence[tuple[str, str]]
"""Ids of jobs, each with the idempotency key of its submission ("" for the job that currently has the name)."""


def wait_jobs(
    connection: Connection,
    calls: JobCalls,
    wanted: AwaitedJobs,
    *,
    any_of_them: bool,
    timeout: float | None,
    clock: Callable[[], float] = time.monotonic,
) -> list[JobStatus]:
    """Wait until all (or any) of these jobs have ended. Return at once for no jobs. Raise like `IrisClient.wait_jobs`.

    Args:
        connection: For separate calls.
        calls: For waits through the session.
        wanted: The jobs.
        any_of_them: Return when one of them has ended.
        timeout: Seconds; None for no limit.
        clock: A monotonic clock in seconds.
    """
    if timeout is not None and not _is_number(timeout):
        raise InvalidRequest(f"timeout must be a number of seconds, or None for no limit, not {timeout!r}")
    if not wanted:
        return []
    deadline = None if timeout is None else clock() + timeout
    while True:
        left = _LONG_POLL_SECONDS if deadline is None else deadline - clock()
        seconds = max(0.0, min(left, _LONG_POLL_SECONDS))
        statuses, done = _wait_once(connection, calls, wanted, any_of_them, seconds)
        if done:
            return statuses
        if deadline is not None and clock() >= deadline:
            live = [f"{s.job_id} is {s.state.word}" for s in statuses if not s.is_terminal]
            may_live = "but an attempt may still run on an unreachable host (see `iris job summary`)"
            live = live or [f"{s.job_id} is {s.state.word}, {may_live}" for s in statuses]
            more = f" and {len(live) - 3} more" if len(live) > 3 else ""
            raise DeadlineExceeded(f"not ended within {timeout:g} s: {', '.join(live[:3])}{more}")


def _is_number(seconds: float) -> bool:
    # With NaN time would never be up.
    return isinstance(seconds, int | float) and not math.isnan(seconds)


def poll_jobs(
    connection: Connection, job_ids: Sequence[str], *, any_of_them: bool, seconds: float
) -> tuple[list[JobStatus], bool]:
    """Return the statuses of these jobs once all (or any) have ended or the timeout expires, and whether they have
    ended.

    Args:
        connection: The connection to the controller.
        job_ids: The jobs.
        any_of_them: Return when one of them has ended.
        seconds: Timeout, up to about a minute.
    """
    request = pb.WaitJobsRequest(job_ids=job_ids, any=any_of_them, timeout_ms=max(1, round(seconds * 1000)))
    reply = connection.run(lambda c: c.jobs.WaitJobs(request, timeout=seconds + c.timeout, metadata=c.metadata))
    return [job_status(status) for status in reply.jobs], reply.done


def _wait_once(
    connection: Connection, calls: JobCalls, wanted: AwaitedJobs, any_of_them: bool, seconds: float
) -> tuple[list[JobStatus], bool]:
    """Poll jobs like `poll_jobs`, through the session if it is open."""
    job_ids = [job_id for job_id, _ in wanted]
    told = calls.wait(wanted, any_of_them=any_of_them, seconds=seconds)
    if told is None:
        return poll_jobs(connection, job_ids, any_of_them=any_of_them, seconds=seconds)
    ended, done = told
    if all(job_id in ended for job_id in job_ids):
        return [job_status(ended[job_id]) for job_id in job_ids], True
    # How the others are is not told by itself; one may have ended before the session had time to say so.
    polled, is_over = poll_jobs(connection, job_ids, any_of_them=any_of_them, seconds=0)
    return [job_status(ended[s.job_id]) if s.job_id in ended else s for s in polled], done or is_over
