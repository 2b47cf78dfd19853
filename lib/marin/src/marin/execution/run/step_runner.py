"""Runs of step specs, from a list or an endless generator (see `marin.execution.run.spec_source`)."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Iterator, Sequence

from marin.execution.jobs.live_jobs import LiveJobs
from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.log.step_output import step_output
from marin.execution.record.own_modules import OwnModules
from marin.execution.report.error_text import log_failure, short_errors
from marin.execution.report.events import RunObserver, StepEnd, told_run
from marin.execution.report.explain_mode import explain_request
from marin.execution.report.failure_report import FailureReport
from marin.execution.run.attempt import Attempt
from marin.execution.run.crew import check_max_concurrent, most_at_work
from marin.execution.run.outcomes import add_failure
from marin.execution.run.runner import StepRun
from marin.execution.run.spec_source import DEFAULT_STREAM_TERMS, SpecSource, StreamTerms
from marin.execution.run.spec_task import spec_task
from marin.execution.step_spec import StepSpec
from marin.execution.version.graph import dependencies_first
from marin.execution.views.observers import default_observers
from rigging.errors import InvalidRequest


class StepRunner:
    """Run step specs whose output does not exist, each as soon as its deps are done.

    Args:
        observers: Called with the events of the run. Defaults to the log, or a live view on a terminal.
        terms: The limits for the specs of a long stream held at a time.
    """

    def __init__(
        self, observers: Sequence[RunObserver] | None = None, *, terms: StreamTerms = DEFAULT_STREAM_TERMS
    ) -> None:
        self._observers = observers
        self._terms = terms

    def run(
        self,
        steps: Iterable[StepSpec],
        *,
        dry_run: bool = False,
        force_run_failed: bool = True,
        max_concurrent: int | None = None,
    ) -> None:
        """Run the specs, and their deps, whose output does not exist.

        Args:
            steps: The requested specs, in any number. A separate thread takes the next one of a generator when there is
                room, so the generator may wait for outputs of earlier specs.
            dry_run: Print each spec that would run, deps first, without accessing storage.
            force_run_failed: Whether to retry steps that failed in an earlier run.
            max_concurrent: Maximum number of concurrent specs; None for every ready one (up to `MAX_STEP_THREADS`).

        Raises:
            StepFailed: Some steps failed, after everything else has run. The cause names the first one with its hash;
                its own cause is that step's error.
            InvalidRequest: An item is not a spec, specs depend on each other in a circle, or a limit is below 1.
        """
        check_max_concurrent(max_concurrent)
        checked = _checked(steps)
        if dry_run or explain_request() is not None:
            for spec in _each_once(checked):
                print(f"  {spec.name}  {spec.output_path}")
            return
        observers = default_observers() if self._observers is None else self._observers
        jobs = LiveJobs()
        source = SpecSource(
            checked, most_at_work(max_concurrent), force_run_failed=force_run_failed, jobs=jobs, terms=self._terms
        )
        failures = FailureReport(rerun=lambda _: None)
        run = StepRun(
            source,
            force_run_failed=force_run_failed,
            max_concurrent=max_concurrent,
            stop_work=jobs.terminate,
            observers=observers,
            on_failure=lambda result: add_failure(failures, result),
        )
        with short_errors():
            try:
                with told_run(observers, steps=None), step_output(is_parallel=max_concurrent != 1):
                    run.run()
            finally:
                failures.log()
            source.raise_failures()

    def run_step(self, step: StepSpec, *, force_run_failed: bool = True) -> bool:
        """Run one spec, like the function `run_step`."""
        return run_step(step, force_run_failed=force_run_failed)

    def check_cache(self, step: StepSpec | str) -> bool:
        """Return whether an output exists, like the function `check_cache`."""
        return check_cache(step)


def run_step(step: StepSpec, *, force_run_failed: bool = True) -> bool:
    """Run one spec in this thread without checking its deps. Return False if its output existed.

    Raises:
        PreviousTaskFailedError: The last attempt failed, and `force_run_failed` is off.
        Exception: Raised by its function.
    """
    task = spec_task(step, step.output_path, LiveJobs(), OwnModules())
    keeper = LeaseKeeper()
    try:
        attempt = Attempt(task, keeper, force_run_failed=force_run_failed)
        # Only the function sees this lease.
        with step_output(is_parallel=False):
            result = contextvars.copy_context().run(attempt.run_to_end)
    finally:
        keeper.stop()
    if result.end is StepEnd.FAILED and result.error is not None:
        log_failure(task.name, task.output_path, result.error)
    if result.error is not None:
        raise result.error
    return result.end is StepEnd.SUCCEEDED


def check_cache(step: StepSpec | str) -> bool:
    """Return whether the output of a spec, or at an output path, exists."""
    path = step.output_path if isinstance(step, StepSpec) else step
    return StatusFile(path).status == STATUS_SUCCESS


def _checked(steps: Iterable[StepSpec]) -> Iterator[StepSpec]:
    for spec in steps:
        if not isinstance(spec, StepSpec):
            raise InvalidRequest(f"StepRunner.run(steps=...): {spec!r} is a {type(spec).__name__}, not a StepSpec")
        yield spec


def _each_once(steps: Iterable[StepSpec]) -> Iterator[StepSpec]:
    seen: set[str] = set()
    for spec in steps:
        order = dependencies_first([spec], lambda node: node.deps, lambda node: node.name, _in(seen))
        for node in order:
            seen.add(node.output_path)
            yield node


def _in(paths: set[str]) -> Callable[[StepSpec], bool]:
    return lambda spec: spec.output_path in paths
