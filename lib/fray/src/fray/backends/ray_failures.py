"""What became of an attempt on Ray: told apart by cause, because preemption and failure have separate retry budgets."""

from enum import StrEnum
from typing import NamedTuple

import ray.exceptions as ray_errors


class End(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PREEMPTED = "preempted"
    STOPPED = "stopped"


class Outcome(NamedTuple):
    """What a worker says of a job that it ran.

    Args:
        error: The exception, pickled; None when there was none, or it cannot be pickled.
        summary: Type and text of the error; None on success.
        trace: Its traceback, as text.
        exit_code: Of a program, or of a callable that called sys.exit().
        output: What was written and not yet reported.
        reported: Whether the session knows of the job, and has its earlier output.
    """

    error: bytes | None = None
    summary: str | None = None
    trace: str = ""
    exit_code: int | None = None
    output: bytes = b""
    reported: bool = False


class AttemptEnd(NamedTuple):
    """How an attempt ended and why; `outcome` is what the worker said, if it lived to say anything."""

    end: End
    reason: str = ""
    outcome: Outcome | None = None


def title_of(error: BaseException) -> str:
    """An exception's type and text, also where its class cannot give a text."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # a stranger's `__str__`
        return type(error).__name__


def describe_outcome(outcome: Outcome | None) -> AttemptEnd:
    """The end of an attempt whose worker answered; None is the answer of success without output."""
    if outcome is None or outcome.summary is None:
        return AttemptEnd(End.SUCCEEDED, outcome=outcome)
    return AttemptEnd(End.FAILED, outcome.summary, outcome)


def describe_error(error: BaseException) -> AttemptEnd:
    """The end of an attempt whose worker did not answer, from what Ray raises.

    Ray says NodeDiedError when the node is gone, and WorkerCrashedError when the node lives and only the process has
    died: the first is capacity taken away, the second the job's own doing.
    """
    if isinstance(error, ray_errors.TaskCancelledError):
        return AttemptEnd(End.STOPPED, "it was cancelled")
    text = " ".join(str(error).split())
    if isinstance(error, (ray_errors.NodeDiedError, ray_errors.LocalRayletDiedError)):
        return AttemptEnd(End.PREEMPTED, f"its node is gone: {text}")
    if isinstance(error, ray_errors.ObjectLostError):
        return AttemptEnd(End.PREEMPTED, f"an object that it needs was lost with its node: {text}")
    if isinstance(error, ray_errors.RayActorError) and error.preempted:
        return AttemptEnd(End.PREEMPTED, f"its node was preempted: {text}")
    if isinstance(error, ray_errors.WorkerCrashedError):
        return AttemptEnd(End.FAILED, "its process ended without an answer (a crash, or an exit past Python)")
    if isinstance(error, ray_errors.OutOfMemoryError):
        return AttemptEnd(End.FAILED, f"its node ran out of memory and stopped it: {text}")
    if isinstance(error, ray_errors.RuntimeEnvSetupError):
        return AttemptEnd(End.FAILED, f"its environment could not be set up: {text}")
    return AttemptEnd(End.FAILED, f"{type(error).__name__}: {text}")
