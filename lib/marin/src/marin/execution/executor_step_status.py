"""The status of a step's output and the lock beside it (see `marin.execution.lease.status_file`)."""

from marin.execution.lease.status_file import (
    PreviousTaskFailedError,
    StatusFile,
    StepAlreadyDone,
    distributed_lock,
    step_lock,
    worker_id,
)
from marin.execution.lease.status_words import STATUS_DEP_FAILED, STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS

__all__ = [
    "STATUS_DEP_FAILED",
    "STATUS_FAILED",
    "STATUS_RUNNING",
    "STATUS_SUCCESS",
    "PreviousTaskFailedError",
    "StatusFile",
    "StepAlreadyDone",
    "distributed_lock",
    "step_lock",
    "worker_id",
]
