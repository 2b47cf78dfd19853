"""The failures of a run: added to its report, and raised as one error."""

from __future__ import annotations

from collections.abc import Sequence

from marin.execution.report.events import FURTHER_LINES, StepEnd, describe_error
from marin.execution.report.failure_report import FailureReport
from marin.execution.run.step_task import StepResult
from rigging.errors import StepFailed


def add_failure(failures: FailureReport, result: StepResult) -> None:
    """Add a failed result to the report."""
    if result.error is not None:
        failures.add(result.task.name, result.task.output_path, result.error, result.log)


def raise_failures(results: Sequence[StepResult]) -> None:
    """Raise one error that names every failed step, when there is one.

    Raises:
        StepFailed: with the first failure as its cause.
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
