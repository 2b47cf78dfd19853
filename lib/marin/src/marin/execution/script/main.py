"""The command line of an experiment script."""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

from marin.execution.config.prefix import prefix_or_default
from marin.execution.config.step import ExecutorStep
from marin.execution.plan.selection import NoSuchStep, check_steps
from marin.execution.report.debugger import NoDebugger, check_debugger, debug_failure
from marin.execution.report.error_text import end_without_traceback, short_errors
from marin.execution.report.explain_mode import ExplainRequest, explain_request
from marin.execution.report.failure_report import rerun_by_executor, rerun_by_main
from marin.execution.report.rerun import rerun_command
from marin.execution.report.shell import has_command_line, is_kernel
from marin.execution.report.words import summary_lines as step_lines
from marin.execution.run.outcomes import ended
from marin.execution.run.pipeline import Executor
from marin.execution.run.prefix import prefix_in_force
from marin.execution.run.step_task import StepResult
from marin.execution.script.command_line import (
    ExecutorMainConfig,
    end_with_usage_error,
    parse_command_line,
    script_arguments,
)
from marin.execution.views.observers import default_observers, is_notebook
from rigging.errors import MarinError, StepFailed
from rigging.project.env_files import BadEnvFile, read_env_files, variables_in_force
from rigging.text.printable import print_lines

__all__ = ["ExecutorMainConfig", "executor_main", "parse_command_line", "summary_lines"]

logger = logging.getLogger(__name__)

_LIBRARIES = ("marin", "fray", "iris", "rigging")


def executor_main(
    config: ExecutorMainConfig | None = None,
    steps: Sequence[ExecutorStep[Any]] = (),
    description: str | None = None,
    max_concurrent: int | None = None,
) -> dict[ExecutorStep[Any], str]:
    """Run an experiment. A script calls this with its steps.

    Without a config, the options come from the script's command line: `--prefix`, `--executor_info_base_path`,
    `--dry_run`, `--force_run_failed`, `--force`, `--run_only`, `--max_concurrent`, `--strict`, `--rerun-changed`,
    `--explain`, `--step`, `--env_file`, `--pdb`, `--verbose`. In a notebook the defaults apply.

    Args:
        config: The options, instead of the command line.
        steps: The requested steps. Their dependencies are included.
        description: The purpose of the experiment.
        max_concurrent: Maximum number of concurrent steps. It takes precedence over the option.

    Returns:
        The output path of every step, including dependencies.

    Raises:
        StepFailed: Steps failed. The message names all of them; the first is the cause.
    """
    with short_errors():
        return _main(config, steps, description, max_concurrent)


def _main(
    config: ExecutorMainConfig | None,
    steps: Sequence[ExecutorStep[Any]],
    description: str | None,
    max_concurrent: int | None,
) -> dict[ExecutorStep[Any], str]:
    from rigging.log_setup import configure_logging

    options = parse_command_line(script_arguments()) if config is None else config
    configure_logging()
    if options.verbose:
        for name in _LIBRARIES:
            logging.getLogger(name).setLevel(logging.DEBUG)
    else:
        # It logs the traceback of an error that it raises as well.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    rerun: Callable[[str], str] = rerun_command
    if config is not None or not has_command_line():
        call = rerun_by_executor if has_command_line() else rerun_by_main
        rerun = functools.partial(call, tag=options.rerun_changed)
    try:
        if options.pdb:
            check_debugger()
        variables = read_env_files(options.env_file or ())
        with variables_in_force(variables):
            return _run_or_explain(options, steps, description, max_concurrent, variables, rerun)
    except (NoSuchStep, BadEnvFile, NoDebugger) as error:
        if config is None:
            end_with_usage_error(error)
        raise
    except KeyboardInterrupt as error:
        if not options.verbose:
            end_without_traceback(error, "the run was interrupted")
        raise
    except StepFailed as error:
        # What failed was told, in full, at the end of the run.
        head, _, rest = str(error).partition("\n")
        end_without_traceback(error, f"{head} see above" if rest else None)
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
    variables: Mapping[str, str],
    rerun: Callable[[str], str | None],
) -> dict[ExecutorStep[Any], str]:
    request = explain_request() or (ExplainRequest(options.step) if options.explain else None)
    against = None if request is None else request.prefix
    prefix = prefix_or_default(options.prefix if against is None else against)
    base_path = options.executor_info_base_path or os.path.join(prefix, "experiments")
    executor = Executor(prefix, base_path, description)
    executor.job_env_vars = variables
    # The summary comes first, so that what failed is what stands above the prompt.
    executor.rerun, executor.tells_failures = rerun, False
    executor.debug = _debug if options.pdb else None
    if request is not None:
        _explain(executor, steps, options, request)
        return dict(executor.output_paths)
    executor.observers = default_observers(summary=False)
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
                force=options.force or (),
                rerun_changed=options.rerun_changed,
            )
    finally:
        if not is_notebook():  # there the view has the summary
            lines = summary_lines(executor.results, executor.executor_info_path)
            browse = (
                [f"see it in a browser: {executor.browse_words()}"] if lines and executor.executor_info_path else []
            )
            print_lines([*lines, *browse])
        executor.failures.show()


def _debug(result: StepResult) -> None:
    if result.error is None:
        return
    if result.task.in_process:
        debug_failure(result.task.name, result.error)
    else:
        logger.warning(
            "--pdb: step %s ran as %s, not in this process: so no debugger can open there",
            result.task.name,
            result.log or "a job",
        )


def _explain(
    executor: Executor, steps: Sequence[ExecutorStep[Any]], options: ExecutorMainConfig, request: ExplainRequest
) -> None:
    if request.inspect is not None:
        for step in check_steps(steps):
            executor.compute_version(step)
        request.inspect(executor)
        return
    from marin.execution.script.explain import explain_steps, explanation_lines

    explanations = explain_steps(
        executor,
        steps,
        run_only=options.run_only,
        force_run_failed=options.force_run_failed,
        force=options.force or (),
        show=request.step,
        rerun_changed=options.rerun_changed,
    )
    if request.tell is not None:
        request.tell(explanations)
    else:
        print_lines(explanation_lines(explanations))


def summary_lines(results: Sequence[StepResult], info_path: str | None) -> list[str]:
    """Return the summary of a run as readable lines: each step's name, outcome and output path.

    Args:
        results: The results of the steps.
        info_path: The run's info file, named last, or None.
    """
    if not results:
        return []
    lines = [line for _, line in step_lines([ended(result) for result in results])]
    if info_path is not None:
        lines.append(f"run info: {info_path}")
    return lines


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Context manager: SIGTERM and SIGHUP raise SystemExit, so that a stopped run leaves correct statuses.

    Signals that have a handler or are ignored (SIGHUP under nohup) are unaffected. A notebook's kernel treats
    SystemExit as an error of its cell, so the same signal ends it after the block.
    """
    received: list[int] = []
    numbers = [signal.SIGTERM, signal.SIGHUP]
    is_main = threading.current_thread() is threading.main_thread()
    taken = [number for number in numbers if is_main and signal.getsignal(number) is signal.SIG_DFL]

    def leave(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        sys.exit(128 + number)

    for number in taken:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        if received and is_kernel():
            os.kill(os.getpid(), received[0])
