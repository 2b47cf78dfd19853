"""Classify how tasks on Ray ended. Preemption and failure have separate retry budgets."""

import re

import ray.exceptions as ray_errors

from fray.backends.common.job_life import SUCCESS, AttemptEnd, AttemptStatus
from fray.backends.ray.payload import TaskResult

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(text: str) -> str:
    """Return Ray's text without terminal escape codes."""
    return _COLOUR.sub("", text)


def describe_outcome(outcome: TaskResult | None) -> AttemptEnd:
    """Return how an attempt ended, from its worker's answer. None means success without output."""
    if outcome is None:
        return SUCCESS
    if outcome.summary is None:
        return AttemptEnd(AttemptStatus.SUCCEEDED, detail=outcome)
    return AttemptEnd(AttemptStatus.FAILED, outcome.summary, outcome)


def describe_error(error: BaseException) -> AttemptEnd:
    """Return how an attempt without a worker's answer ended, from Ray's exception.

    NodeDiedError counts as a preemption. WorkerCrashedError, where only the process died, is the job's own failure.
    """
    if isinstance(error, ray_errors.TaskCancelledError):
        return AttemptEnd(AttemptStatus.STOPPED, "it was cancelled")
    text = " ".join(without_colours(str(error)).split())
    if isinstance(error, (ray_errors.NodeDiedError, ray_errors.LocalRayletDiedError)):
        return AttemptEnd(AttemptStatus.PREEMPTED, f"its node is gone: {text}")
    if isinstance(error, ray_errors.ObjectLostError):
        return AttemptEnd(AttemptStatus.PREEMPTED, f"an object that it needs was lost with its node: {text}")
    if isinstance(error, ray_errors.RayActorError) and error.preempted:
        return AttemptEnd(AttemptStatus.PREEMPTED, f"its node was preempted: {text}")
    if isinstance(error, ray_errors.WorkerCrashedError):
        return AttemptEnd(
            AttemptStatus.FAILED, "its process ended without an answer (a crash, or an exit that bypassed Python)"
        )
    if isinstance(error, ray_errors.OutOfMemoryError):
        return AttemptEnd(AttemptStatus.FAILED, f"its node ran out of memory and stopped it: {text}")
    if isinstance(error, ray_errors.RuntimeEnvSetupError):
        return AttemptEnd(AttemptStatus.FAILED, f"its environment could not be set up: {text}")
    return AttemptEnd(AttemptStatus.FAILED, f"{type(error).__name__}: {text}")
