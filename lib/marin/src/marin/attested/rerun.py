"""Rerun attested steps: with the run's script, in a fresh prefix, from inputs that match the attestation."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import random
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from marin.attested.attestation import Attestation, AttestedStep, key_of, path_of
from marin.attested.reading import digest_of
from marin.execution.config.instantiate import MIRROR_SCHEME, instantiate_config, rebuild
from marin.execution.config.step import ExecutorStep, InputName
from marin.execution.config.values import MirroredValue, unwrap_versioned_value
from marin.execution.jobs.live_jobs import LiveJobs
from marin.execution.jobs.placement import bind, remote_function, tries_of
from marin.execution.jobs.remote import connect
from marin.execution.log.step_output import step_output
from marin.execution.record.provenance import provenance_differences
from marin.execution.report.events import describe_error, told_run
from marin.execution.report.explain_mode import explaining
from marin.execution.report.failure_report import FailureReport
from marin.execution.run.outcomes import add_failure
from marin.execution.run.pipeline import Executor
from marin.execution.run.plan_source import run_tasks
from marin.execution.run.prefix import prefix_in_force
from marin.execution.run.step_task import StepTask
from marin.execution.script.main import exit_on_signals
from marin.execution.step_spec import StepSpecFunction
from marin.execution.version.step_version import Step
from marin.execution.views.observers import default_observers
from marin.recorded.reading.store import each
from rigging.errors import Conflict
from rigging.filesystem import url_to_fs
from rigging.filesystem.location import path_in

_SHOWN = 20


class Rerun:
    """Reruns steps of an attestation after a script has planned them.

    Args:
        attestation: The attestation.
        prefix: The current storage root of the attested outputs.
        fresh: The storage root for the new outputs.
        sample: The number of steps, chosen at random; None for all.
        seed: The seed of the choice.

    Attributes:
        prefix: As given.
        fresh: As given.
        errors: The error of each step that ran, or None. None before the run.
        code: The differences of each step's values and code from the attested output.
        absent: The attested steps that the script lacks; None if it called no `executor_main`.
    """

    def __init__(self, attestation: Attestation, prefix: str, fresh: str, sample: int | None, seed: int) -> None:
        self._attested = {step.path: step for step in attestation.steps}
        self.prefix = prefix
        self.fresh = fresh
        self._sample = sample
        self._seed = seed
        self.errors: dict[str, str | None] | None = None
        self.code: dict[str, list[str]] = {}
        self.absent: list[str] | None = None

    def inspect(self, executor: Executor) -> None:
        """Rerun the steps if an executor, planned at the attested prefix, has all of them; then end the script.

        Raises:
            SystemExit: The steps have run. The rest of the script is skipped.
            Conflict: An input of a chosen step does not match the attestation.
        """
        executor.plan.move(_tags(executor, [path_of(key, self.prefix) for key in self._attested]))
        steps = {key_of(executor.output_paths[step], self.prefix): step for step in executor.steps}
        absent = [key for key in self._attested if key not in steps]
        if absent:
            self.absent = absent if self.absent is None else min(self.absent, absent, key=len)
            return
        able = [key for key in self._attested if steps[key].fn is not None]
        chosen = {key: steps[key] for key in sampled(able, self._sample, self._seed)}
        self._check_inputs(executor, chosen)
        for key, step in chosen.items():
            found = provenance_differences(self._attested[key].made_by, executor.plan.info(step))
            self.code[key] = [str(difference) for difference in found]
        self.errors = self._run(executor, chosen)
        raise SystemExit(0)

    def path_of(self, key: str) -> str:
        """Return the new output path of a step."""
        if path_of(key, self.fresh) != key:
            return path_of(key, self.fresh)
        name = hashlib.sha256(key.encode()).hexdigest()[:12]  # a fixed path outside the prefix
        return path_in(self.fresh, f"fixed-{name}")

    def _check_inputs(self, executor: Executor, chosen: Mapping[str, Step]) -> None:
        """Check that the attested outputs read by chosen steps still match the attestation."""
        needed = dict.fromkeys(
            key_of(executor.output_paths[dependency], self.prefix)
            for step in chosen.values()
            for dependency in executor.dependencies[step]
        )
        changed = [
            place
            for key in needed
            if key in self._attested and key not in chosen
            for place in changed_files(self._attested[key], path_of(key, self.prefix))
        ]
        if changed:
            raise Conflict(
                f"{len(changed)} input file(s) of the chosen steps do not match the attestation: "
                f"{', '.join(changed[:_SHOWN])}; verify without --sample, which reruns all steps, "
                "or name the prefix that has them with --prefix"
            )

    def _run(self, executor: Executor, chosen: Mapping[str, Step]) -> dict[str, str | None]:
        jobs = LiveJobs()
        tasks = {key: self._task(executor, key, step, chosen, jobs) for key, step in chosen.items()}
        failures = FailureReport(rerun=lambda _: None)
        observers = default_observers(summary=False)
        if any(not task.in_process for task in tasks.values()):
            connect()
        with (
            explaining(None),
            exit_on_signals(),
            prefix_in_force(self.fresh),
            told_run(observers, len(tasks)),
            step_output(is_parallel=len(tasks) > 1),
        ):
            results = run_tasks(
                list(tasks.values()),
                {},
                stop_work=jobs.terminate,
                observers=observers,
                on_failure=functools.partial(add_failure, failures),
            )
        failures.log()
        return {
            key: None if result.ok else describe_error(result.error) for key, result in zip(tasks, results, strict=True)
        }

    def _task(self, executor: Executor, key: str, step: Step, chosen: Collection[str], jobs: LiveJobs) -> StepTask:
        path = self.path_of(key)
        keys = {
            dependency: key_of(executor.output_paths[dependency], self.prefix)
            for dependency in executor.plan.version_of(step).dependencies
        }
        rerun = {dependency: self.path_of(other) for dependency, other in keys.items() if other in chosen}
        places = ChainMap(rerun, executor.output_paths)
        config = instantiate_config(rebuild(step.config, self._at_hand), path, places, self.prefix)
        bound = step
        if isinstance(step.fn, StepSpecFunction):  # it would write to the attested output
            bound = dataclasses.replace(step, fn=StepSpecFunction(None, step.fn.__wrapped__, path))
        return StepTask(
            name=step.name,
            output_path=path,
            dependencies=frozenset(rerun.values()),
            work=lambda: bind(bound, config, path, self.fresh, jobs, executor.job_env_vars)(),
            in_process=remote_function(bound) is None,
            is_fresh=True,
            stop=functools.partial(jobs.terminate_one, path),
            tries=tries_of(bound),
            has_ended=functools.partial(jobs.has_ended, path),
            take_log=functools.partial(jobs.take_log, path),
        )

    def _at_hand(self, placeholder: Any) -> Any:
        """Convert a mirrored input to the output itself, and a mirrored path to the file below the attested prefix,
        because the mirror looks below the fresh one."""
        if isinstance(placeholder, MirroredValue):
            path = unwrap_versioned_value(placeholder.value)
            if isinstance(path, ExecutorStep) or (isinstance(path, InputName) and path.step is not None):
                return path
            if isinstance(path, InputName):
                path = path.name
            if isinstance(path, str) and MIRROR_SCHEME not in path:
                fs, place = url_to_fs(path_of(path, self.prefix))
                if fs.exists(place):
                    return InputName.hardcoded(path)
        return placeholder


def _tags(executor: Executor, attested: Iterable[str]) -> dict[Step, str]:
    """Return the tags of attested paths `{output path}@{tag}`, by step."""
    own = {path: step for step, path in executor.output_paths.items() if executor.canonicalize(step) is step}
    parts = [path.rpartition("@") for path in attested if path not in own]
    return {own[path]: tag for path, _, tag in parts if path in own}


def sampled(keys: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Return `count` keys, chosen by a seed, in their order; all keys if there are fewer."""
    if count is None or count >= len(keys):
        return list(keys)
    chosen = set(random.Random(seed).sample(keys, count))
    return [key for key in keys if key in chosen]


def changed_files(step: AttestedStep, output_path: str) -> list[str]:
    """Return the paths of an output's files that are missing or do not match the attestation."""
    places = [path_in(output_path, file.name) for file in step.files]
    read = zip(places, step.files, each(_digest, places, output_path), strict=True)
    return [place for place, file, found in read if found != (file.bytes, file.sha256)]


def _digest(path: str) -> tuple[int, str] | None:
    try:
        return digest_of(path)
    except FileNotFoundError:
        return None
