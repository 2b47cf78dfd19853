"""The command line of an experiment script."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

from marin.execution.config.prefix import prefix_or_default
from marin.execution.config.step import ExecutorStep
from marin.execution.plan.selection import NoSuchStep
from marin.execution.record.provenance import in_words
from marin.execution.report.error_text import end_without_traceback
from marin.execution.report.events import StepEnd, describe_error
from marin.execution.report.explain_mode import ExplainRequest, explain_request
from marin.execution.run.pipeline import Executor
from marin.execution.run.prefix import prefix_in_force
from marin.execution.run.step_task import StepResult
from marin.execution.script.command_line import (
    ExecutorMainConfig,
    end_with_usage_error,
    parse_command_line,
    script_arguments,
)
from rigging.errors import MarinError
from rigging.printable import print_lines

__all__ = ["ExecutorMainConfig", "executor_main", "parse_command_line", "summary_lines"]

_LIBRARIES = ("marin", "fray", "iris", "rigging")


def executor_main(
    config: ExecutorMainConfig | None = None,
    steps: Sequence[ExecutorStep[Any]] = (),
    description: str | None = None,
    max_concurrent: int | None = None,
) -> dict[ExecutorStep[Any], str]:
    """Run an experiment; a script calls this with its steps.

    Without a config, the options come from the script's command line: `--prefix`, `--executor_info_base_path`,
    `--dry_run`, `--force_run_failed`, `--run_only`, `--max_concurrent`, `--strict`, `--explain`, `--step`, `--verbose`.
    In a notebook the defaults hold.

    Args:
        config: The options, instead of the command line.
        steps: The steps requested; their dependencies are included.
        description: What the experiment is for.
        max_concurrent: At most this many steps run at once; takes precedence over the option.

    Returns:
        The output path of every step, dependencies included.

    Raises:
        StepFailed: Steps failed; all are named, the first is the cause.
    """
    from rigging.log_setup import configure_logging

    options = parse_command_line(script_arguments()) if config is None else config
    configure_logging()
    if options.verbose:
        for name in _LIBRARIES:
            logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        return _run_or_explain(options, steps, description, max_concurrent)
    except NoSuchStep as error:
        if config is None:
            end_with_usage_error(error)
        raise
    except MarinError as error:
        if not options.verbose:
            end_without_traceback(error)
        raise


def _run_or_explain(
    options: ExecutorMainConfig,
    steps: Sequence[ExecutorStep[Any]],
    description: str | None,
    max_concurrent: int | None,
) -> dict[ExecutorStep[Any], str]:
    request = explain_request() or (ExplainRequest(options.step) if options.explain else None)
    against = None if request is None else request.prefix
    prefix = prefix_or_default(options.prefix if against is None else against)
    base_path = options.executor_info_base_path or os.path.join(prefix, "experiments")
    executor = Executor(prefix, base_path, description)
    if request is not None:
        _explain(executor, steps, options, request)
        return dict(executor.output_paths)
    try:
        # As in jobs: `mirror://` paths and `marin_prefix()` refer to the run's prefix.
        with exit_on_signals(), nullcontext() if options.prefix is None else prefix_in_force(executor.prefix):
            return executor.run(
                steps,
                dry_run=options.dry_run,
                run_only=options.run_only,
                force_run_failed=options.force_run_failed,
                max_concurrent=options.max_concurrent if max_concurrent is None else max_concurrent,
                strict=options.strict,
            )
    finally:
        print_lines(summary_lines(executor.results, executor.executor_info_path))


def _explain(
    executor: Executor, steps: Sequence[ExecutorStep[Any]], options: ExecutorMainConfig, request: ExplainRequest
) -> None:
    from marin.execution.script.explain import explain_steps, explanation_lines

    explanations = explain_steps(
        executor,
        steps,
        run_only=options.run_only,
        force_run_failed=options.force_run_failed,
        show=request.step,
    )
    if request.tell is not None:
        request.tell(explanations)
    else:
        print_lines(explanation_lines(explanations))


def summary_lines(results: Sequence[StepResult], info_path: str | None) -> list[str]:
    """Return the summary of a run as lines for people: each step's name, outcome and output path.

    Args:
        results: The results of the steps.
        info_path: The run's info file, named last; None when there is none.
    """
    if not results:
        return []
    width = max(len(result.task.name) for result in results)
    lines = [f"{result.task.name:<{width}}  {_words(result)}  {result.task.output_path}" for result in results]
    if info_path is not None:
        lines.append(f"run info: {info_path}")
    return lines


def _words(result: StepResult) -> str:
    if result.end is StepEnd.SUCCEEDED:
        queued = f", queued {result.queued_seconds:.2f}s" if result.queued_seconds else ""
        return f"SUCCESS (ran {result.seconds:.2f}s{queued})"
    if result.end is StepEnd.CACHED:
        return (
            f"SUCCESS (already done{', made with other ' + in_words(result.differences) if result.differences else ''})"
        )
    if result.end is StepEnd.DEP_FAILED:
        return "DEP_FAILED (not run)"
    first_line = describe_error(result.error).partition("\n")[0]
    return f"FAILED ({first_line})"


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Context manager: SIGTERM and SIGHUP raise SystemExit, so that a stopped run leaves true statuses behind.

    Signals that have a handler, or are ignored (SIGHUP under nohup), are left alone.
    """
    numbers = [signal.SIGTERM, signal.SIGHUP]
    is_main = threading.current_thread() is threading.main_thread()
    taken = [number for number in numbers if is_main and signal.getsignal(number) is signal.SIG_DFL]

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
