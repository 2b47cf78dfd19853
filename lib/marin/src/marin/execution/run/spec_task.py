"""A step spec as a task: its function, job and info file."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from marin.execution.config.prefix import prefix_or_default
from marin.execution.config.step import ExecutorStep
from marin.execution.jobs.live_jobs import LiveJobs
from marin.execution.jobs.placement import bind, tries_of
from marin.execution.jobs.remote import RemoteCallable, function_name
from marin.execution.record.function_source import function_source
from marin.execution.record.held import held_by
from marin.execution.record.info import plain
from marin.execution.record.output_state import read_infos
from marin.execution.record.own_modules import OwnModules
from marin.execution.record.provenance import code_differences, parse_info
from marin.execution.run.step_task import StepTask
from marin.execution.step_spec import StepSpec
from marin.execution.version.canonical import strict, to_bytes
from marin.execution.version.differences import Difference, value_differences
from rigging.redaction import redact_value

#: What `.executor_info` says about who wrote it.
EXECUTOR_VERSION = "step_runner"


def spec_task(
    spec: StepSpec, output_path: str, jobs: LiveJobs, modules: OwnModules, *, is_fresh: bool = False
) -> StepTask:
    """Return the task that makes a spec's output.

    Args:
        spec: The spec.
        output_path: Its output path, which is slow to compute.
        jobs: The jobs of the run, for a spec that runs as a job.
        modules: The user's own modules, as this run found them.
        is_fresh: Whether there was no status a moment ago.
    """
    step = ExecutorStep[str](
        spec.name,
        spec.fn,
        output_path,
        resources=spec.resources,
        retries=spec.retries,
        retry_delay=spec.retry_delay,
        timeout=spec.timeout,
    )
    prefix = prefix_or_default(spec.output_path_prefix)
    return StepTask(
        name=spec.name,
        output_path=output_path,
        dependencies=frozenset(spec.dep_paths),
        work=lambda: bind(step, output_path, output_path, prefix, jobs)(),
        info=lambda: to_bytes(spec_info(spec, modules)),
        in_process=spec.resources is None and not isinstance(spec.fn, RemoteCallable),
        is_fresh=is_fresh,
        stop=functools.partial(jobs.terminate_one, output_path),
        tries=tries_of(step),
        has_ended=functools.partial(jobs.has_ended, output_path),
        take_log=functools.partial(jobs.take_log, output_path),
    )


def spec_info(spec: StepSpec, modules: OwnModules) -> dict[str, Any]:
    """Return the content of a bare spec's `.executor_info`."""
    source, reached = _code(spec, modules)
    return {
        "name": spec.name,
        "fn_name": function_name(spec.fn),
        "config": redact_value(plain(dict(spec.hash_attrs))),
        "description": None,
        "override_output_path": spec.override_output_path,
        "version": {},
        "dependencies": spec.dep_paths,
        "output_path": spec.output_path,
        "executor_version": EXECUTOR_VERSION,
        "source": source,
        **({"reached": reached} if reached else {}),
    }


def spec_differences(spec: StepSpec, output_path: str, modules: OwnModules) -> list[Difference]:
    """Return the differences in code and in the order of deps between an output's record and a spec.

    The hash sorts the deps, so `diff(a, b)` and `diff(b, a)` have the same path. At a fixed path the attributes and
    deps are compared, too, because the path contains no hash. Return [] without a record.
    """
    there = parse_info(read_infos([output_path])[output_path])
    if there is None:
        return []
    old, new = there.get("dependencies"), spec.dep_paths
    is_reordered = isinstance(old, list) and old != new and sorted(map(str, old)) == sorted(new)
    order = [Difference("order of deps", str(old), str(new))] if is_reordered else []
    return order + _of_fixed_path(there, spec, modules) + code_differences(there, *_code(spec, modules))


def _code(spec: StepSpec, modules: OwnModules) -> tuple[dict[str, str], dict[str, Any]]:
    held = held_by([spec.fn])
    return function_source(spec.fn, held), modules.reached(spec.fn, held)


def _of_fixed_path(there: Mapping[str, Any], spec: StepSpec, modules: OwnModules) -> list[Difference]:
    if spec.override_output_path is None:
        return []
    now = spec_info(spec, modules)
    pairs = [({name: there.get(name)}, {name: now[name]}) for name in ("name", "config")]
    if sorted(map(str, there.get("dependencies") or ())) != sorted(now["dependencies"]):
        pairs.append(({"deps": there.get("dependencies")}, {"deps": now["dependencies"]}))
    return [item for old, new in pairs for item in value_differences(strict(old), strict(new))]
