"""The status file of an output path and the lock beside it, for code that makes outputs itself."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast, overload

from marin.execution.lease.circles import begin_wait, end_wait, making
from marin.execution.lease.fencing import LeaseToken
from marin.execution.lease.first_generation import is_local_success
from marin.execution.lease.status_words import (
    STATUS_DEP_FAILED,
    STATUS_FAILED,
    STATUS_RUNNING,
    STATUS_SUCCESS,
    parse_status,
    status_path,
)
from marin.output_files import LOCK_SUFFIX, STATUS_FILE
from rigging.distributed_lock import HeldLease, LeaseLock, LeaseLostError, create_lock, lease
from rigging.errors import Conflict, StepFailed
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.process.coroutines import call_around, is_coroutine_function

logger = logging.getLogger(__name__)

T = TypeVar("T")


class StepAlreadyDone(Exception):
    """Not an error: the output already exists, or was made by the last holder of the lease."""


class PreviousTaskFailedError(StepFailed):
    """The step failed in an earlier run, and should not be retried."""


def worker_id() -> str:
    """Return a readable name for this thread of this process: `{host}-{pid}-{thread}`."""
    return f"{os.uname().nodename}-{os.getpid()}-{threading.get_native_id()}"


class StatusFile:
    """The status of one output path, and the lock beside it.

    Args:
        output_path: The step's output path.
        worker_id: The lock's holder. An explicit id may acquire again a lock that it holds.
    """

    def __init__(self, output_path: str, worker_id: str | None = None) -> None:
        self.output_path = output_path
        self.path = status_path(output_path)
        self.lock_path = self.path + LOCK_SUFFIX
        self.worker_id = worker_id
        self._lock: LeaseLock | None = None

    @property
    def status(self) -> str | None:
        """The stored status, or None."""
        content = read_bytes_or_none(self.path)
        if content is None and is_local_success(self.output_path):
            return STATUS_SUCCESS
        return parse_status(content)

    def write_status(self, status: str) -> None:
        """Replace the status, atomically."""
        write_bytes_atomic(self.path, status.encode())

    def try_acquire_lock(self) -> bool:
        """Take the lock if it is free, and return whether it is now held. The lock is not renewed automatically (see
        `step_lock`).
        """
        return self._leased().try_acquire()

    def refresh_lock(self) -> None:
        """Renew the lock. Raise LeaseLostError if it is no longer held."""
        self._leased().refresh()

    def release_lock(self) -> None:
        """Release the lock. Another holder's lock stays."""
        self._leased().release()

    def token(self) -> LeaseToken:
        """Return the proof that this lock is held, for writes under it."""
        return LeaseToken(self.output_path, self._leased().worker_id)

    def has_active_lock(self) -> bool:
        """Return whether any holder holds and renews the lock."""
        return self._leased().has_active_holder()

    def _leased(self) -> LeaseLock:
        if self._lock is None:
            self._lock = create_lock(self.lock_path, self.worker_id)
        return self._lock


class LockedStatus(StatusFile):
    """A status file whose lock is held and renewed. Statuses are only written while the lock is held."""

    def __init__(self, output_path: str, held: HeldLease) -> None:
        super().__init__(output_path, held.worker_id)
        self.held = held
        self._process = os.getpid()

    def write_status(self, status: str) -> None:
        """Replace the status, atomically.

        Raises:
            LeaseLostError: The lock was lost, so another attempt may be making this output now.
            Conflict: This process is a fork of the lock's holder. Only the holder may write.
        """
        if os.getpid() != self._process:
            raise Conflict(
                f"status of {self.output_path}: its lock is held by process {self._process}, of which this one is a "
                "fork; end the fork with os._exit() in the function that forked it"
            )
        self.held.check()
        try:
            # The last renewal was up to half a minute ago; another attempt may have taken the lock since.
            LeaseToken(self.output_path, self.held.worker_id).write(STATUS_FILE, status.encode())
        except LeaseLostError:
            self.held.lost.set()
            raise


@contextlib.contextmanager
def step_lock(
    output_path: str, step_label: str = "", *, force_run_failed: bool = True, wait_seconds: float = math.inf
) -> Iterator[LockedStatus]:
    """Hold the lock of an output path during the block, after waiting for other holders.

    Args:
        output_path: The step's output path.
        step_label: The step's name in messages.
        force_run_failed: Whether to retry a step that failed before.
        wait_seconds: How long to wait for another holder.

    Raises:
        StepAlreadyDone: The output exists.
        PreviousTaskFailedError: The last attempt failed, and `force_run_failed` is off.
        Conflict: Another holder kept the lock for all of `wait_seconds`, or that holder waits for the calling code.
        LeaseLostError: At the end of the block, if the lock was lost meanwhile.
    """
    label = step_label or output_path
    with contextlib.ExitStack() as stack:
        lock_path = status_path(output_path) + LOCK_SUFFIX
        try:
            held = stack.enter_context(lease(lock_path))
        except Conflict as error:
            if not wait_seconds:
                raise
            begin_wait(output_path)
            logger.info("step %s: another run is making its output, waiting (%s)", label, error)
            try:
                held = stack.enter_context(lease(lock_path, wait_seconds=wait_seconds))
            finally:
                end_wait(output_path)
        locked = LockedStatus(output_path, held)
        # Read under the lock: its last holder may have finished the output.
        check_status(locked.status, label, output_path, force_run_failed=force_run_failed)
        stack.enter_context(making(output_path))
        yield locked


@contextlib.contextmanager
def making_output(
    output_path: str, step_label: str = "", *, force_run_failed: bool = True, wait_seconds: float = math.inf
) -> Iterator[LeaseToken]:
    """Hold the lock for a block that makes an output. Write RUNNING before it, and SUCCESS or FAILED after it.

    The block gets the lock's token.

    Arguments and errors are those of `step_lock`.
    """
    with step_lock(output_path, step_label, force_run_failed=force_run_failed, wait_seconds=wait_seconds) as status:
        status.write_status(STATUS_RUNNING)
        try:
            yield status.token()
        except BaseException:
            status.write_status(STATUS_FAILED)
            raise
        status.write_status(STATUS_SUCCESS)


def check_status(status: str | None, label: str, output_path: str, *, force_run_failed: bool) -> None:
    """Check whether a step with this status must run.

    Args:
        status: The status, or None.
        label: The step's name in messages.
        output_path: Its output path.
        force_run_failed: Whether to retry a step that failed before.

    Raises:
        StepAlreadyDone: The output exists.
        PreviousTaskFailedError: The last attempt failed, and `force_run_failed` is off.
    """
    if status == STATUS_SUCCESS:
        raise StepAlreadyDone(f"step {label}: already done at {output_path}")
    if status == STATUS_FAILED and not force_run_failed:
        raise PreviousTaskFailedError(
            f"step {label} failed previously (status FAILED at {output_path}); "
            "run with --force_run_failed true to try it again"
        )


def mark_dependency_failed(output_path: str) -> None:
    """Write DEP_FAILED, unless another run is making this output or has made it."""
    status_file = StatusFile(output_path)
    if not status_file.try_acquire_lock():
        return
    try:
        if status_file.status != STATUS_SUCCESS:
            status_file.token().write(STATUS_FILE, STATUS_DEP_FAILED.encode())
    finally:
        status_file.release_lock()


class LockedFunction(Generic[T]):
    """A function that runs under the lock of its first argument, an output path (see `distributed_lock`)."""

    #: See `marin.execution.plan.call_identity`.
    wraps_function = True

    def __init__(self, fn: Callable[..., T], force_run_failed: bool = True) -> None:
        self._force_run_failed = force_run_failed
        functools.update_wrapper(self, fn)
        self.__wrapped__ = fn

    def __call__(self, output_path: str, *args: Any, **kwargs: Any) -> T:
        fn: Any = self.__wrapped__
        if is_coroutine_function(fn):
            return cast(T, call_around(fn, lambda plain: self.around(plain)(output_path, *args, **kwargs)))
        return self.call_and_keep(None, output_path, *args, **kwargs)

    def around(self, fn: Callable[..., T]) -> LockedFunction[T]:
        """Return another function under the same lock."""
        return LockedFunction(fn, self._force_run_failed)

    def call_and_keep(self, keep: Callable[[T], object] | None, output_path: str, *args: Any, **kwargs: Any) -> T:
        """Call the function, then `keep(result)` under the lock, before SUCCESS is written."""
        with making_output(output_path, force_run_failed=self._force_run_failed):
            result = self.__wrapped__(output_path, *args, **kwargs)
            if keep is not None:
                keep(result)
            return result


@overload
def distributed_lock(fn: Callable[..., T], *, force_run_failed: bool = True) -> Callable[..., T]: ...


@overload
def distributed_lock(
    fn: None = None, *, force_run_failed: bool = True
) -> Callable[[Callable[..., T]], Callable[..., T]]: ...


def distributed_lock(
    fn: Callable[..., T] | None = None, *, force_run_failed: bool = True
) -> Callable[..., T] | Callable[[Callable[..., T]], Callable[..., T]]:
    """Run a function of an output path (its first argument) under that path's lock. Use it as `@distributed_lock` or
    call it.

    A call waits for another holder of the lock, in any process on any machine. It writes RUNNING before the function
    and SUCCESS or FAILED after it. After a lost lock it never writes SUCCESS.

    Args:
        fn: The function.
        force_run_failed: Whether to retry an output that failed before.

    Raises:
        StepAlreadyDone: (from a call) The output exists. The function was not called.
        PreviousTaskFailedError: (from a call) The last attempt failed, and `force_run_failed` is off.
        LeaseLostError: (from a call) The lock was lost meanwhile, so the work was unprotected.
    """

    if fn is None:
        return functools.partial(LockedFunction, force_run_failed=force_run_failed)
    return LockedFunction(fn, force_run_failed)
