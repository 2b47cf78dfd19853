"""Functions of an output path, each run under that path's lock and status."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from marin.execution.executor_step_status import STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS, step_lock

T = TypeVar("T")


@overload
def distributed_lock(fn: Callable[..., T], *, force_run_failed: bool = True) -> Callable[..., T]: ...


@overload
def distributed_lock(
    fn: None = None, *, force_run_failed: bool = True
) -> Callable[[Callable[..., T]], Callable[..., T]]: ...


def distributed_lock(
    fn: Callable[..., T] | None = None, *, force_run_failed: bool = True
) -> Callable[..., T] | Callable[[Callable[..., T]], Callable[..., T]]:
    """Run a function of an output path (its first argument) under that path's lock: `@distributed_lock`, or called.

    A call waits for whoever holds the lock, in any process on any machine; writes RUNNING before and SUCCESS or FAILED
    after the function, and never SUCCESS once the lock was lost.

    Args:
        fn: The function.
        force_run_failed: Whether an output that failed before is tried again.

    Raises:
        StepAlreadyDone: (from a call) The output is there; the function was not called.
        PreviousTaskFailedError: (from a call) It failed previously, and `force_run_failed` is off.
        LeaseLostError: (from a call) The lock was lost on the way: the work was unprotected.
    """

    def wrap(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def locked(output_path: str, *args: Any, **kwargs: Any) -> T:
            with step_lock(output_path, force_run_failed=force_run_failed) as status:
                status.write_status(STATUS_RUNNING)
                try:
                    result = function(output_path, *args, **kwargs)
                except BaseException:
                    status.write_status(STATUS_FAILED)
                    raise
                status.write_status(STATUS_SUCCESS)
                return result

        return locked

    return wrap if fn is None else wrap(fn)
