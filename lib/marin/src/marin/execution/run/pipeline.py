"""The executor: find steps without an output, and run them in order."""

from __future__ import annotations

import functools
import logging
import os
import shlex
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from marin.execution.config.step import ExecutorStep
from marin.execution.jobs.live_jobs import LiveJobs
from marin.execution.jobs.placement import (
    bind,
    check_function,
    check_job_region,
    remote_function,
    tries_of,
)
from marin.execution.jobs.remote import connect
from marin.execution.lease.set_aside import ForcedOutputs
from marin.execution.lease.status_file import worker_id
from marin.execution.lease.status_words import STATUS_DEP_FAILED, STATUS_FAILED, STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.lease.step_lease import DEFAULT_TERMS, LeaseTerms
from marin.execution.log.step_output import step_output
from marin.execution.plan.collision import PlannedStep, check_existing
from marin.execution.plan.plan import StepPlan, StepsByVersionText, VersionTexts
from marin.execution.plan.rerun_changed import check_tag, move_changed, states_of_steps
from marin.execution.plan.selection import check_steps, matching_steps, select_steps
from marin.execution.record.code_record import code_recorder
from marin.execution.record.info import (
    STEP_INFO_FILE,
    ExecutorInfo,
    ExecutorStepInfo,
    StepText,
    caller_path,
    now_text,
    user_name,
)
from marin.execution.record.output_state import OutputState, OutputStates, read_output_states, statuses_of
from marin.execution.record.provenance import compared, refuse_differences, report_merged
from marin.execution.record.readers import forced_outputs
from marin.execution.report.error_text import short_errors
from marin.execution.report.events import RunObserver, told_run
from marin.execution.report.explain_mode import explain_request
from marin.execution.report.failure_report import FailureReport, rerun_by_executor
from marin.execution.report.rerun import marin_command
from marin.execution.run.crew import check_max_concurrent
from marin.execution.run.outcomes import add_failure, raise_failures
from marin.execution.run.plan_source import run_tasks
from marin.execution.run.prefix import warn_of_other_mirror
from marin.execution.run.runner import gc_paused
from marin.execution.run.step_task import StepResult, StepTask
from marin.execution.version.differences import Difference
from marin.execution.version.paths import check_path_length
from marin.execution.version.step_version import Step
from marin.execution.views.observers import default_observers
from rigging.errors import InvalidRequest
from rigging.filesystem import absolute_prefix, write_bytes_atomic
from rigging.filesystem.location import path_in
from rigging.project.checkout import git_commit
from rigging.project.code_state import handed_code_state
from rigging.text.printable import print_lines

logger = logging.getLogger(__name__)

#: Where `get_experiment_url` finds served pages (`marin browser`, a cluster's dashboard); without one the info file is
#: the URL. The second is the older name.
BROWSER_URL_VARIABLES = ("MARIN_BROWSER_URL", "MARIN_DATA_BROWSER_URL")


class Executor:
    """Run the steps whose output does not exist, and provide the output path of each.

    Args:
        prefix: The storage root of every output path.
        executor_info_base_path: The directory of the info files of whole runs.
        description: The purpose of the run.

    Attributes:
        steps: Every added step, including dependencies, in topological order.
        output_paths: The output path of each step.
        configs: Each step's config, in the form for its function.
        dependencies: The canonical steps that each step depends on, one entry per reference.
        is_pseudo_dep: Whether a step is only named by non-blocking inputs, and so need not run.
        versions: Each step's version. Equal parts are shared objects, so do not modify them.
        version_strs: Its canonical JSON text.
        version_str_to_step: The canonical step of each JSON text.
        hashed_versions: The six hash digits of each step.
        step_infos: The info of each step that is not a pseudo-dependency (after `get_infos`).
        executor_info: The info of the run (after `get_infos`).
        executor_info_path: The run's info file (after `write_infos`).
        results: The result of each output in the last `run`.
        observers: Called with the events of a run; None for new `default_observers()` in each run.
        lease_terms: The timings of steps' leases.
        failures: The failures of the last `run`, to be reported once.
        tells_failures: Whether `run` logs `failures` at its end. Otherwise the caller reports them.
        rerun: Returns the command that runs a step again, by name.
        debug: Called with the result of each failed step, in the thread of `run`. No step starts meanwhile.
        job_env_vars: Variables of the steps' jobs. Those of a `remote()` function win.
    """

    def __init__(self, prefix: str, executor_info_base_path: str, description: str | None = None) -> None:
        # Jobs have another working directory: what is relative is resolved here, once.
        self.prefix = absolute_prefix(prefix)
        self.executor_info_base_path = absolute_prefix(executor_info_base_path)
        self.description = description
        self.plan = StepPlan(self.prefix)
        self.configs = self.plan.configs
        self.dependencies = self.plan.dependencies
        self.versions = self.plan.versions
        self.hashed_versions = self.plan.hashed_versions
        self.output_paths = self.plan.output_paths
        self.is_pseudo_dep = self.plan.is_pseudo_dep
        self.version_strs = VersionTexts(self.plan)
        self.version_str_to_step = StepsByVersionText(self.plan, self.version_strs)
        self.step_infos: list[ExecutorStepInfo] = []
        self.executor_info: ExecutorInfo | None = None
        self.executor_info_path: str | None = None
        self.results: list[StepResult] = []
        self.observers: Sequence[RunObserver] | None = None
        self.lease_terms: LeaseTerms = DEFAULT_TERMS
        self.rerun: Callable[[str], str | None] = rerun_by_executor
        self.failures = FailureReport()
        self.tells_failures = True
        self.debug: Callable[[StepResult], None] | None = None
        self.job_env_vars: Mapping[str, str] = {}
        self._forced = ForcedOutputs([])
        self._texts: dict[str, StepText] = {}
        self._info_of: dict[str, ExecutorStepInfo] = {}

    @property
    def steps(self) -> list[Step]:
        """Every added step, in topological order. Steps with equal version and output path appear once."""
        return [step for step in self.output_paths if self.canonicalize(step) is step]

    def compute_version(self, step: Step, is_pseudo_dep: bool = False) -> None:
        """Add a step and everything it refers to: compute versions, output paths and configs.

        Raises:
            InvalidRequest: A config cannot be versioned, or steps depend on each other in a circle.
            Conflict: Two different versions have one output path.
        """
        self.plan.add(step, is_pseudo_dep)

    def canonicalize(self, step: Step) -> Step:
        """Return the first added step with this step's version and output path."""
        return self.plan.canonicalize(step)

    def run(
        self,
        steps: Sequence[ExecutorStep[Any]],
        *,
        dry_run: bool = False,
        run_only: Sequence[str] | None = None,
        force_run_failed: bool = True,
        max_concurrent: int | None = None,
        strict: bool = False,
        force: Sequence[str] = (),
        rerun_changed: str | None = None,
    ) -> dict[ExecutorStep[Any], str]:
        """Run the steps, and their dependencies, whose output does not exist.

        Args:
            steps: The requested steps.
            dry_run: Print what would run, without accessing storage.
            run_only: Run only the steps whose name matches one of these regexes (`re.search`), with their dependencies.
                This includes steps that only a non-blocking input names.
            force_run_failed: Whether to retry steps that failed in an earlier run.
            max_concurrent: Maximum number of concurrent steps; None for no limit.
            strict: Refuse existing outputs made with other unversioned values or code, and steps of one version that
                differ in these. Otherwise the differences are only logged.
            force: Run the steps whose name matches one of these regexes although their outputs exist. Each output is
                set aside until its step has succeeded, and restored if it fails.
            rerun_changed: Run finished steps whose code has changed, and their dependants, with outputs at `{output
                path}@{rerun_changed}`. A later run with the same value reuses them.

        Returns:
            The output path of every step, including dependencies.

        Raises:
            StepFailed: Some steps failed. The message names all of them; the first is the cause.
            Conflict: Another version has a step's output path, or (`strict`) an output was made differently. Nothing
                has run.
            Unavailable: The cluster for the jobs is unreachable. Nothing has run.
            InvalidRequest: Arguments are wrong, steps cannot be versioned, functions are generators, or
                (`RegionConflict`) a job's paths are in several regions. Nothing has run.
        """
        with short_errors():
            check_max_concurrent(max_concurrent)
            if rerun_changed is not None:
                check_tag(rerun_changed, dry_run=dry_run)
            wanted = check_steps(steps)
            self.results = []
            self.plan.move({})
            with gc_paused():
                for step in wanted:
                    self.compute_version(step, is_pseudo_dep=False)
            chosen = select_steps(self.plan, wanted, run_only)
            if run_only is not None:
                for step in chosen:
                    # One that only non-blocking inputs name is to run, too, when it is chosen.
                    self.compute_version(step)
            forced = matching_steps(chosen, force, "force") if force else []
            for step in chosen:
                check_path_length(step.name, self.output_paths[step])
            report_merged(self.plan.merged_among(chosen), strict)
            # A script that runs its Executor itself must not run it when it is only asked to explain.
            if dry_run or explain_request() is not None:
                self._print_plan(chosen)
                return dict(self.output_paths)
            if rerun_changed is not None:
                with gc_paused():
                    move_changed(self.plan, chosen, self._states(chosen, ForcedOutputs([])), rerun_changed)
            self._forced = forced_outputs([self.output_paths[step] for step in forced], self.executor_info_base_path)
            self._run_chosen(chosen, force_run_failed, max_concurrent, strict)
            raise_failures(self.results)
            return dict(self.output_paths)

    def _run_chosen(
        self, chosen: Sequence[Step], force_run_failed: bool, max_concurrent: int | None, strict: bool
    ) -> None:
        jobs, forced = LiveJobs(), self._forced
        with gc_paused():
            self.get_infos()
            states = self._states(chosen, forced)
            forced.check(path for path, state in states.items() if state.status == STATUS_SUCCESS)
            found = check_existing([self._planned(step) for step in chosen], states)
            differing = {path: differences for path, differences in found.items() if path not in forced.paths}
            # A step with this status runs, over what may be there.
            states.update(dict.fromkeys(forced.paths, OutputState(STATUS_DEP_FAILED, None)))
            if strict:
                refuse_differences(differing)
            for step in chosen:
                path = self.output_paths[step]
                if states[path].status != STATUS_SUCCESS:
                    check_function(step)
                    check_job_region(step, self.configs[step], path)
            to_run = [step for step in chosen if states[self.output_paths[step]].status != STATUS_SUCCESS]
            if any(remote_function(step) is not None for step in to_run):
                connect()
            self._note_run()
            tasks = [self._task(step, jobs, states, differing, strict) for step in chosen]
        observers = [*(self.observers if self.observers is not None else default_observers())]
        observers += [forced] if forced.any else []
        warn_of_other_mirror([step for step in to_run if remote_function(step) is None], self.prefix)
        failures = self.failures = FailureReport(self.rerun)
        try:
            with (
                told_run(observers, len(chosen), self.description, self.executor_info_path, self._code_recorder()),
                step_output(is_parallel=max_concurrent != 1 and len(to_run) > 1),
            ):
                run_tasks(
                    tasks,
                    statuses_of(states),
                    force_run_failed=force_run_failed,
                    on_end=self._note_results,
                    max_concurrent=max_concurrent,
                    stop_work=jobs.terminate,
                    terms=self.lease_terms,
                    observers=observers,
                    on_failure=lambda result: add_failure(failures, result),
                    debug=self.debug,
                )
        finally:
            forced.close()
            if self.tells_failures:
                failures.log()

    def _states(self, chosen: Sequence[Step], forced: ForcedOutputs) -> OutputStates:
        """Return the states of outputs, after restoring outputs that killed runs left aside."""
        states = states_of_steps(self.plan, chosen)
        unfinished = [path for path, state in states.items() if state.status in (STATUS_FAILED, STATUS_RUNNING)]
        states.update(read_output_states(forced.resume(unfinished)))
        return states

    def _note_results(self, results: list[StepResult]) -> None:
        self.results = results

    def get_infos(self) -> None:
        """Compute `step_infos` and `executor_info`."""
        self.step_infos = [self.plan.info(step) for step in self.steps if not self.is_pseudo_dep[step]]
        self._info_of = {info.output_path: info for info in self.step_infos}
        self._texts = {info.output_path: StepText.of(info) for info in self.step_infos}
        path = caller_path()
        handed = handed_code_state(os.environ)
        self.executor_info = ExecutorInfo(
            worker_id=worker_id(),
            git_commit=git_commit(_folder_of(path)) if handed is None else handed.commit,
            caller_path=path,
            created_date=now_text(),
            user=user_name(),
            prefix=self.prefix,
            description=self.description,
            steps=self.step_infos,
        )

    def _code_recorder(self) -> Callable[[], dict[str, Any]]:
        assert self.executor_info is not None
        folder = _folder_of(self.executor_info.caller_path)
        functions = self.plan.code_by_function()
        return code_recorder(self.executor_info_base_path, folder, self.plan.own_modules, functions)

    def write_infos(self) -> None:
        """Write the run's info file, and each step's into its output path."""
        self.get_infos()
        self._write_run_info()
        for path, text in self._texts.items():
            write_bytes_atomic(path_in(path, STEP_INFO_FILE), text.indented)

    def get_experiment_url(self) -> str:
        """Return the URL of the run's page if MARIN_BROWSER_URL names a server, else its info file.

        `marin browser --prefix PREFIX` serves the pages of a prefix.

        Raises:
            InvalidRequest: The info file has not been written.
        """
        if self.executor_info_path is None:
            raise InvalidRequest("get_experiment_url(): no info file yet; call write_infos() or run() first")
        browser = next((url for name in BROWSER_URL_VARIABLES if (url := os.environ.get(name))), None)
        if browser is None:
            return self.executor_info_path
        return f"{browser.rstrip('/')}/experiment?path={urllib.parse.quote(self.executor_info_path, safe='')}"

    def browse_words(self) -> str:
        """Return how to see the run in a browser: an address, or the command that serves its pages."""
        if any(os.environ.get(name) for name in BROWSER_URL_VARIABLES):
            return self.get_experiment_url()
        words = ["browser", "--prefix", self.prefix]
        if self.executor_info_base_path != path_in(self.prefix, "experiments"):
            words += ["--runs", self.executor_info_base_path]
        return f"{marin_command()} {shlex.join(words)}"

    def _note_run(self) -> None:
        """Write the run's info file. A failure, such as on a read-only prefix, is only logged."""
        try:
            self._write_run_info()
        # Storage libraries raise errors of many types; a missing info file must not fail the run.
        except Exception as error:
            self.executor_info_path = None
            logger.warning("the run's info file could not be written to %s: %s", self.executor_info_base_path, error)

    def _write_run_info(self) -> None:
        assert self.executor_info is not None
        texts = list(self._texts.values())
        path = os.path.join(self.executor_info_base_path, self.executor_info.file_name(texts))
        write_bytes_atomic(path, self.executor_info.to_bytes(texts))
        self.executor_info_path = path

    def _planned(self, step: Step) -> PlannedStep:
        path = self.output_paths[step]
        return PlannedStep(step, self.plan.version_of(step), path, self._texts[path].indented, self._info_of[path])

    def _task(
        self,
        step: Step,
        jobs: LiveJobs,
        states: Mapping[str, OutputState],
        differing: Mapping[str, Sequence[Difference]],
        strict: bool,
    ) -> StepTask:
        path = self.output_paths[step]
        text = self._texts[path]
        dependencies = frozenset([self.output_paths[dependency] for dependency in self.dependencies[step]])
        if states[path].status == STATUS_SUCCESS:
            return StepTask(step.name, path, dependencies, lambda: None, differences=differing.get(path, ()))
        return StepTask(
            name=step.name,
            output_path=path,
            dependencies=dependencies,
            work=lambda: bind(step, self.configs[step], path, self.prefix, jobs, self.job_env_vars)(),
            info=lambda: text.indented,
            in_process=remote_function(step) is None,
            is_fresh=states[path].status is None,
            was_running=states[path].status == STATUS_RUNNING,
            stop=functools.partial(jobs.terminate_one, path),
            tries=tries_of(step),
            has_ended=functools.partial(jobs.has_ended, path),
            take_log=functools.partial(jobs.take_log, path),
            differences=differing.get(path, ()),
            prepare=functools.partial(self._forced.set_aside, path),
            compare=functools.partial(compared, path, self._info_of[path], strict),
        )

    def _print_plan(self, chosen: Sequence[Step]) -> None:
        lines = [f"dry run: {len(chosen)} step(s) would run unless their output exists:"]
        for step in chosen:
            where = "as a job" if remote_function(step) is not None else "in this process"
            lines.append(f"  {step.name}  ({where})  {self.output_paths[step]}")
        print_lines(lines)


def _folder_of(caller: str) -> str:
    return os.path.dirname(caller) or "."
