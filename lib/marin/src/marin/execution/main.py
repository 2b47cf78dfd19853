"""The command line of an experiment script."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from marin.execution.choosing import check_patterns
from marin.execution.explain_mode import ExplainRequest, explain_request
from marin.execution.paths import prefix_or_default
from marin.execution.pipeline import Executor
from marin.execution.provenance import in_words
from marin.execution.runner import Outcome, StepResult, check_max_concurrent, describe_error
from marin.execution.step import ExecutorStep
from rigging.errors import InvalidRequest
from rigging.printable import printable

_USAGE_EXIT_CODE = 2


@dataclass(frozen=True)
class ExecutorMainConfig:
    """Runs the steps of this experiment whose output is not there yet."""

    prefix: str | None = None
    """The storage root of every output path (default: MARIN_PREFIX, else the region's bucket, else /tmp/marin)."""

    executor_info_base_path: str | None = None
    """Where the file that describes the run goes (default: {prefix}/experiments)."""

    dry_run: bool = False
    """Print what would run, and touch no storage."""

    force_run_failed: bool = True
    """Try steps again that failed in an earlier run."""

    run_only: list[str] | None = None
    """Run only steps whose name matches one of these regexes, with what they need: stats, or '["^raw/", stats]'."""

    max_concurrent: int | None = None
    """Steps at work at once (default: every ready one)."""

    explain: bool = False
    """Say for each step whether it would run and why, and run nothing."""

    strict: bool = False
    """Refuse outputs that are there but were made with other unversioned values or by other code."""

    step: str | None = None
    """With --explain: only the steps whose name matches this regex."""


def executor_main(
    config: ExecutorMainConfig | None = None,
    steps: Sequence[ExecutorStep[Any]] = (),
    description: str | None = None,
    max_concurrent: int | None = None,
) -> dict[ExecutorStep[Any], str]:
    """Run an experiment: what a script calls with its steps.

    Without a config, the script's command line is read: `--prefix`, `--executor_info_base_path`, `--dry_run`,
    `--force_run_failed`, `--run_only`, `--max_concurrent`, `--strict`, `--explain`, `--step`.

    Args:
        config: The options, instead of the command line's.
        steps: The steps wanted; what they depend on comes with them.
        description: What the experiment is for.
        max_concurrent: Steps at work at once; wins over the option.

    Returns:
        The output path of every step, dependencies included.

    Raises:
        StepFailed: Some steps failed; all are named, the first is the cause.
    """
    from rigging.log_setup import configure_logging

    options = parse_command_line(sys.argv[1:]) if config is None else config
    configure_logging()
    prefix = prefix_or_default(options.prefix)
    base_path = options.executor_info_base_path or os.path.join(prefix, "experiments")
    executor = Executor(prefix, base_path, description)
    request = explain_request() or (ExplainRequest(options.step) if options.explain else None)
    if request is not None:
        _explain(executor, steps, options, request)
        return dict(executor.output_paths)
    try:
        with _terminate_as_exit():
            return executor.run(
                steps,
                dry_run=options.dry_run,
                run_only=options.run_only,
                force_run_failed=options.force_run_failed,
                max_concurrent=options.max_concurrent if max_concurrent is None else max_concurrent,
                strict=options.strict,
            )
    finally:
        for line in summary_lines(executor.results, executor.executor_info_path):
            print(printable(line), flush=True)


def _explain(
    executor: Executor, steps: Sequence[ExecutorStep[Any]], options: ExecutorMainConfig, request: ExplainRequest
) -> None:
    from marin.execution.explain import explain_steps, explanation_lines

    explanations = explain_steps(
        executor,
        steps,
        run_only=options.run_only,
        force_run_failed=options.force_run_failed,
        show=request.step,
    )
    for line in explanation_lines(explanations):
        print(printable(line), flush=True)


def parse_command_line(arguments: Sequence[str]) -> ExecutorMainConfig:
    """Read the options from command-line words; a wrong one ends the process with a usage error."""
    import draccus

    try:
        parsed: ExecutorMainConfig = draccus.parse(ExecutorMainConfig, args=_as_draccus_reads(arguments))
        _check(parsed)
    except (draccus.utils.DecodingError, InvalidRequest) as error:
        print(printable(f"{os.path.basename(sys.argv[0])}: error: {error}"), file=sys.stderr)
        sys.exit(_USAGE_EXIT_CODE)
    return parsed


def _check(options: ExecutorMainConfig) -> None:
    """Refuse what can be seen to be wrong before there are steps.

    Raises:
        InvalidRequest: naming the option.
    """
    check_max_concurrent(options.max_concurrent)
    check_patterns(options.run_only or (), "--run_only")
    if options.step is not None:
        check_patterns([options.step], "--step")
        if not options.explain:
            raise InvalidRequest(f"--step {options.step} goes with --explain only; --run_only says which steps to run")


def _as_draccus_reads(arguments: Sequence[str]) -> list[str]:
    """Let people write `--dry_run`, `--run_only stats` and any regex, where draccus wants `true`, a list and YAML."""
    words = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    read: list[str] = []
    for index, word in enumerate(words):
        option = words[index - 1] if index else ""
        if option == "--run_only" and not (word.startswith("[") and word.endswith("]")):
            word = json.dumps([word])
        elif option == "--step":
            word = json.dumps(word)
        read.append(word)
        has_value = index + 1 < len(words) and not words[index + 1].startswith("--")
        if word in ("--dry_run", "--explain", "--strict") and not has_value:
            read.append("true")
    return read


def summary_lines(results: Sequence[StepResult], info_path: str | None) -> list[str]:
    """The end of a run for people: for each step its name, what became of it, and where its output is."""
    if not results:
        return []
    width = max(len(result.task.name) for result in results)
    lines = [f"{result.task.name:<{width}}  {_words(result)}  {result.task.output_path}" for result in results]
    if info_path is not None:
        lines.append(f"run info: {info_path}")
    return lines


def _words(result: StepResult) -> str:
    if result.outcome is Outcome.RAN:
        return f"SUCCESS (ran {result.seconds:.2f}s)"
    if result.outcome is Outcome.ALREADY_DONE:
        return (
            f"SUCCESS (already done{', made with other ' + in_words(result.differences) if result.differences else ''})"
        )
    if result.outcome is Outcome.DEPENDENCY_FAILED:
        return "DEP_FAILED (not run)"
    first_line = describe_error(result.error).partition("\n")[0]
    return f"FAILED ({first_line})"


@contextmanager
def _terminate_as_exit() -> Iterator[None]:
    """Make SIGTERM raise SystemExit meanwhile, so that a stopped run leaves true statuses and no locks behind."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
