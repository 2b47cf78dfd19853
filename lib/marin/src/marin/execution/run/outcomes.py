"""Convert results of attempts to `marin.execution.run.trying` outcomes and to events, and failures to an error."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from marin.execution.lease.status_file import PreviousTaskFailedError, mark_dependency_failed
from marin.execution.report.events import (
    FURTHER_LINES,
    AttemptUse,
    StepEnd,
    StepEnded,
    StepRetrying,
    StepTimedOut,
    describe_error,
)
from marin.execution.report.failure_report import FailureReport
from marin.execution.run.step_task import StepResult, StepTask
from marin.execution.run.trying import Next, Outcome
from rigging.errors import MarinError, StepFailed

logger = logging.getLogger(__name__)


def outcome_of(result: StepResult) -> Outcome:
    """Return the outcome of an attempt."""
    if result.ok:
        return Outcome.SUCCEEDED
    if result.end is StepEnd.LOST:
        return Outcome.LOST
    return outcome_of_failure(result.error) if result.end is StepEnd.FAILED else Outcome.STOPPED


def outcome_of_failure(error: BaseException | None) -> Outcome:
    """Return the outcome of an attempt that failed with an error."""
    if isinstance(error, StepTimedOut):
        return Outcome.TIMED_OUT
    if isinstance(error, PreviousTaskFailedError):
        return Outcome.STOPPED
    # Of fray's JobFailed, which need not be there; the local backend raises a function's own exception.
    if getattr(error, "was_preempted", False):
        return Outcome.PREEMPTED
    return Outcome.STOPPED if getattr(error, "failed_status", None) == "stopped" else Outcome.FAILED


def attempts_of(result: StepResult) -> tuple[AttemptUse, ...]:
    """Return the attempts of a step, including the one of this result; empty for a step that was not started."""
    if result.end is StepEnd.SUCCEEDED and result.use is None and not result.earlier:  # most steps
        return (AttemptUse("succeeded", result.seconds, result.queued_seconds),)
    if result.end in (StepEnd.CACHED, StepEnd.DEP_FAILED) or isinstance(result.error, PreviousTaskFailedError):
        return result.earlier
    use, error = result.use, result.error
    last = AttemptUse(
        outcome_of(result).value,
        result.seconds,
        result.queued_seconds,
        None if use is None else use.cpu_seconds,
        None if use is None else use.peak_bytes,
        None if error is None else describe_error(error),
    )
    return (*result.earlier, last)


def retrying(result: StepResult, outcome: Outcome, following: Next) -> StepRetrying:
    """Return the event of an attempt that will be retried.

    Args:
        result: The attempt's result.
        outcome: The attempt's outcome.
        following: The time and number of the next attempt.
    """
    return StepRetrying(
        time.time(),
        result.task.name,
        result.task.output_path,
        following.tried.attempts,
        outcome.value,
        describe_error(result.error),
        following.delay or 0.0,
        result.seconds,
    )


def ended(result: StepResult) -> StepEnded:
    """Return the event of a step's end."""
    return StepEnded(
        time.time(),
        result.task.name,
        result.task.output_path,
        result.end,
        result.seconds,
        None if result.error is None else describe_error(result.error),
        result.log,
        tuple(map(str, result.differences)),
        result.queued_seconds,
        attempts_of(result),
    )


def note_not_run(task: StepTask) -> None:
    """Write the status of a step that does not run because a dependency failed."""
    try:
        mark_dependency_failed(task.output_path)
    except (OSError, MarinError) as error:
        logger.warning("step %s: could not write DEP_FAILED to %s: %s", task.name, task.output_path, error)


def add_failure(failures: FailureReport, result: StepResult) -> None:
    """Add a failed result to the report."""
    if result.error is not None:
        failures.add(result.task.name, result.task.output_path, result.error, result.log)


def raise_failures(results: Sequence[StepResult]) -> None:
    """Raise one error that names every failed step, if there are any.

    Raises:
        StepFailed: The first failure is the cause.
    """
    failed = [result for result in results if result.end in (StepEnd.FAILED, StepEnd.LOST)]
    if not failed:
        return
    rows = [("step", "path", "error", "log")]
    for result in failed:
        task = result.task
        rows.append((task.name, task.output_path, describe_error(result.error), result.log or "this process's log"))
    widths = [max(len(row[column].partition("\n")[0]) for row in rows) for column in range(2)]
    lines = [f"{len(failed)} step(s) failed:"]
    for name, path, error, log in rows:
        # An error may have many lines: the ones after the first stand below it.
        first, _, rest = error.partition("\n")
        lines.append(f"  {name:<{widths[0]}}  {path:<{widths[1]}}  {first}  [{log}]")
        lines += [f"{FURTHER_LINES}{line}" for line in rest.splitlines()]
    left_out = [result.task.name for result in results if result.end is StepEnd.DEP_FAILED]
    if left_out:
        lines.append(f"not run, because a dependency failed: {', '.join(left_out)}")
    raise StepFailed("\n".join(lines)) from failed[0].error
