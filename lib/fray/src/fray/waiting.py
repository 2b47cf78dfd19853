"""Wait for jobs of any client, and stop them."""

import functools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

from fray.errors import JobFailed
from fray.protocols import JobHandle, StopsMany
from fray.types import JobStatus
from rigging.errors import DeadlineExceeded

WaitHook = Callable[[Sequence[JobHandle], float | None], None]
"""Returns when a job may have ended, or after a timeout in seconds (None for no timeout)."""

_wait_hook: ContextVar[WaitHook | None] = ContextVar("fray_wait_hook", default=None)
_wait_context: ContextVar[Callable[[], AbstractContextManager[None]]] = ContextVar(
    "fray_wait_context", default=nullcontext
)


def set_wait_hook(hook: WaitHook) -> None:
    """For backends whose jobs lend their resources only while they block in the backend's own way."""
    _wait_hook.set(hook)


def set_wait_context(make: Callable[[], AbstractContextManager[None]]) -> None:
    """For backends whose jobs lend their resources while they wait: set the factory of `wait_context`."""
    _wait_context.set(make)


def wait_context() -> AbstractContextManager[None]:
    """Return a context manager to hold while blocking."""
    return _wait_context.get()()


def wait_hook() -> WaitHook | None:
    """Return the backend's own way to block in this context, or None."""
    return _wait_hook.get()


def wait_all(
    jobs: Iterable[JobHandle], timeout: float | None = None, *, raise_on_failure: bool = True
) -> list[JobStatus]:
    """Wait until every job has ended and return their final statuses, in the order of `jobs`.

    Args:
        jobs: Handles, of one or several clients.
        timeout: Seconds for all jobs together; None waits forever.
        raise_on_failure: Raise the first failure as soon as it happens. The other jobs continue.

    Raises:
        DeadlineExceeded: Some jobs did not end in time. The message names them.
        JobFailed: A job did not succeed. The callable's own exception is the cause, where available.
    """
    handles = list(jobs)
    deadline = None if timeout is None else time.monotonic() + timeout
    ended: queue.SimpleQueue[JobHandle] = queue.SimpleQueue()
    for handle in handles:
        handle.add_done_callback(ended.put)
    for _ in handles:
        try:
            handle = next_ended(ended, handles, deadline)
        except queue.Empty:
            unfinished = [handle.job_id for handle in handles if not handle.status().finished()]
            raise DeadlineExceeded(
                f"{len(unfinished)} of {len(handles)} jobs had not ended after {timeout} s: {', '.join(unfinished)}"
            ) from None
        status = handle.wait(raise_on_failure=False)
        if status is not JobStatus.SUCCEEDED and raise_on_failure:
            _raise_failure(handle, status)
    return [handle.status() for handle in handles]


def _raise_failure(handle: JobHandle, status: JobStatus) -> None:
    """Raise JobFailed for a job that failed or was stopped, even where `wait` raises the callable's own exception."""
    try:
        handle.wait()
    except BaseException as error:  # whatever the callable raised: SystemExit must not end the waiting program
        # A callable's own may be the JobFailed of a child.
        if isinstance(error, JobFailed) and error.job_id == handle.job_id:
            raise
        import traceback  # not for every program that imports fray

        title = "".join(traceback.format_exception_only(error)).strip()
        raise JobFailed(f"job {handle.job_id} failed: {title}", status, job_id=handle.job_id) from error


def next_ended(
    ended: "queue.SimpleQueue[JobHandle]", handles: Sequence[JobHandle], deadline: float | None
) -> JobHandle:
    """Return the next job from `ended`. The current job lends its resources meanwhile, where the backend supports that.

    Args:
        ended: The queue that the jobs' done callbacks fill.
        handles: The jobs that have not ended or were not returned yet.
        deadline: A `time.monotonic` value; None waits forever.

    Raises:
        queue.Empty: No job had ended by then.
    """
    block = wait_hook()
    while True:
        left = None if deadline is None else min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        try:
            return ended.get_nowait()
        except queue.Empty:
            if left == 0.0:
                raise
        with wait_context():
            if block is None:
                return ended.get(timeout=left)
            block(handles, left)


def stop_parts(jobs: Iterable[JobHandle]) -> list[tuple[list[JobHandle], Callable[[], None]]]:
    """Return parts of jobs, with a function that stops each: many jobs at once where their backend can."""
    parts: dict[object, list[JobHandle]] = {}
    for job in jobs:
        parts.setdefault(type(job) if isinstance(job, StopsMany) else id(job), []).append(job)
    return [(part, functools.partial(_stop, part)) for part in parts.values()]


def _stop(jobs: Sequence[JobHandle]) -> None:
    first, *others = jobs
    if isinstance(first, StopsMany):
        first.terminate_with(others)
    else:
        first.terminate()
