"""A step without a config: a name, plain attributes that identify the output, and a function of the output path.

data = StepSpec(name="data", hash_attrs={"n": 100}, fn=write_numbers)
stats = StepSpec(name="stats", deps=[data], fn=lambda output_path: summarise(data.output_path, output_path))
StepRunner().run([stats])

`StepSpec.as_executor_step` and `resolve_executor_step` convert between a spec and an ExecutorStep.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from marin.execution.config.copying import copy_config
from marin.execution.config.prefix import prefix_or_default, under_prefix
from marin.execution.config.regions import infer_region
from marin.execution.config.step import ExecutorStep, check_override, check_relative_name, is_absolute
from marin.execution.config.tries import check_tries
from marin.execution.config.values import VersionedValue
from marin.execution.jobs.remote import RemoteCallable
from marin.execution.version.graph import dependencies_first
from rigging.errors import InvalidRequest

if TYPE_CHECKING:
    from fray.types import ResourceConfig

HASH_DIGITS = 8


@dataclass(frozen=True)
class StepSpecConfig:
    """The config of an executor step made from a spec.

    Attributes:
        attrs: The spec's `hash_attrs`, versioned.
        deps: Its deps as executor steps; in the instantiated config, their output paths.
    """

    attrs: Any
    deps: list[Any]


class StepSpecFunction:
    """The function of an executor step made from a spec: calls the spec's function with the output path.

    Pickling omits the spec, which may refer to a large graph.
    """

    def __init__(self, spec: StepSpec | None, fn: Callable[[str], Any], output_path: str) -> None:
        self.spec = spec
        self.output_path = output_path
        self.__wrapped__ = fn  # where inspection looks for the function that is really meant

    def __call__(self, _config: Any) -> Any:
        return self.__wrapped__(self.output_path)

    def __reduce__(self) -> tuple[Any, ...]:
        return StepSpecFunction, (None, self.__wrapped__, self.output_path)


class ExecutorStepFunction:
    """The function of a spec made from an executor step: calls the step's function with its config.

    Args:
        step: The step; None inside a job, which only needs `fn`.
        fn: The step's function.
        config: The step's config with all paths filled in.
        budget_gb: GB that it may copy from other regions; None for the budget of its process.
    """

    def __init__(
        self, step: ExecutorStep[Any] | None, fn: Callable[[Any], Any], config: Any, budget_gb: float | None = None
    ) -> None:
        self.step = step
        self.config = config
        self.budget_gb = budget_gb
        self.__wrapped__ = fn  # where inspection looks for the function that is really meant

    def __call__(self, _output_path: str) -> Any:
        if self.budget_gb is None:
            return self.__wrapped__(copy_config(self.config))
        from rigging.filesystem import mirror_budget

        with mirror_budget(self.budget_gb):
            return self.__wrapped__(copy_config(self.config))

    def __reduce__(self) -> tuple[Any, ...]:
        return ExecutorStepFunction, (None, self.__wrapped__, self.config, self.budget_gb)


@dataclass(frozen=True, eq=False)
class StepSpec:
    """A step whose output path is `{prefix}/{name}_{hash}`.

    Attributes:
        name: The first part of the output path.
        output_path_prefix: The storage root. Defaults to `marin_prefix()`.
        deps: Steps whose output must exist first.
        hash_attrs: Further values that identify the output, as plain JSON.
        override_output_path: A fixed output path, joined to the prefix when relative.
        fn: The step's function. It is called with the output path.
        resources: If given, the function runs as a separate job with these resources.
        retries: Retries after a failure; None for the value given to `remote()`, or else 0.
        retry_delay: Seconds before a retry; None for the value given to `remote()`, or else 0.
        timeout: Timeout of an attempt in seconds; None for the value given to `remote()`, or else no limit.
    """

    name: str
    output_path_prefix: str | None = None
    deps: Sequence[StepSpec] = field(default_factory=list)
    hash_attrs: Mapping[str, Any] = field(default_factory=dict)
    override_output_path: str | None = None
    fn: Callable[[str], Any] | None = None
    resources: ResourceConfig | None = None
    retries: int | None = field(default=None, kw_only=True)
    retry_delay: float | None = field(default=None, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_relative_name(self.name, "step name")
        check_tries(f"step {self.name!r}", self.retries, self.retry_delay, self.timeout)
        if self.override_output_path is not None:
            check_override(self.override_output_path, self.name)
        if isinstance(self.deps, Iterator):
            object.__setattr__(self, "deps", list(self.deps))  # a generator gives them once
        for dep in self.deps:
            if not isinstance(dep, StepSpec):
                raise InvalidRequest(f"step {self.name!r}: deps: {dep!r} is a {type(dep).__name__}, not a StepSpec")

    @property
    def hash_id(self) -> str:
        """The hash in the output path: the first 8 hex digits of SHA-256 over the name, the attributes and the deps'
        names.

        Raises:
            InvalidRequest: `hash_attrs` is not plain JSON, or the specs depend on each other in a circle.
        """
        if "_own_hash" not in self.__dict__:
            for spec in _dependencies_first(self, "_own_hash"):
                _ = spec._own_hash  # deps first, so that none of them recurses
        return self._own_hash

    @cached_property
    def _own_hash(self) -> str:
        content = {"name": self.name, "attrs": self.hash_attrs, "deps": sorted(self.dep_names)}
        try:
            text = json.dumps(content, sort_keys=True)
        except (TypeError, ValueError) as error:
            raise InvalidRequest(
                f"step {self.name!r}: hash_attrs {self.hash_attrs!r} is not plain JSON: {error}"
            ) from None
        return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]

    @property
    def name_with_hash(self) -> str:
        """The output path, relative to the prefix."""
        return f"{self.name}_{self.hash_id}"

    @cached_property
    def output_path(self) -> str:
        """The path of the step's output."""
        prefix = prefix_or_default(self.output_path_prefix)
        if self.override_output_path is not None:
            return under_prefix(prefix, self.override_output_path)
        return os.path.join(prefix, self.name_with_hash)

    @property
    def dep_paths(self) -> list[str]:
        """Output paths of the deps."""
        return [dep.output_path for dep in self.deps]

    @property
    def dep_names(self) -> list[str]:
        """Names of the deps, with hashes."""
        return [dep.name_with_hash for dep in self.deps]

    def as_executor_step(self) -> ExecutorStep[Any]:
        """Return the equivalent step for an `Executor`. Every call returns the same object, with the spec's output
        path.

        Its version holds `hash_attrs` as `attrs` and the deps as `deps.[i]`. For a spec made by
        `resolve_executor_step`, return the original step.
        """
        if "_own_executor_step" not in self.__dict__:
            for spec in _dependencies_first(self, "_own_executor_step"):
                _ = spec._own_executor_step  # deps first, so that none of them recurses
        return self._own_executor_step

    @cached_property
    def _own_executor_step(self) -> ExecutorStep[Any]:
        fn = self.fn.fn if isinstance(self.fn, RemoteCallable) else self.fn
        if isinstance(fn, ExecutorStepFunction) and fn.step is not None:
            return fn.step
        path = self.output_path if is_absolute(self.output_path) else os.path.abspath(self.output_path)
        deps = [dep._own_executor_step for dep in self.deps]
        return ExecutorStep(
            name=self.name,
            fn=None if self.fn is None else StepSpecFunction(self, self.fn, path),
            config=StepSpecConfig(attrs=VersionedValue(dict(self.hash_attrs)), deps=deps),
            override_output_path=path,
            resources=self.resources,
            retries=self.retries,
            retry_delay=self.retry_delay,
            timeout=self.timeout,
        )


def _dependencies_first(spec: StepSpec, done: str) -> list[StepSpec]:
    """Return a spec and its transitive dependencies that lack the attribute `done`, in topological order."""
    return list(
        dependencies_first([spec], lambda node: node.deps, lambda node: node.name, lambda node: done in node.__dict__)
    )


def resolve_executor_step(
    step: ExecutorStep[Any],
    config: Any,
    output_path: str,
    deps: Sequence[StepSpec] | None = None,
    dag_tpu_regions: Sequence[str] | None = None,
    forced_region: str | None = None,
    mirror_budget_gb: float | None = None,
) -> StepSpec:
    """Return a spec equivalent to an executor step whose config and output path are known.

    Args:
        step: The step.
        config: Its instantiated config, such as `executor.configs[step]`.
        output_path: The step's output path, such as `executor.output_paths[step]`.
        deps: The specs of the step's dependencies.
        dag_tpu_regions: The regions where its job may run, unless its resources or paths determine the region.
        forced_region: The region where its job must run.
        mirror_budget_gb: GB that its function may copy between regions; None for the budget that remains in this
            process.

    Returns:
        A spec with this output path that calls the step's function with `config`. Its `as_executor_step()` returns
        `step`. Its `fn` is a `RemoteCallable` if the step's function is. For a step made from a spec with this output
        path, return that spec.

    Raises:
        InvalidRequest: The job is not allowed to run in `forced_region`.
    """
    fn = step.fn
    if isinstance(fn, StepSpecFunction) and fn.spec is not None and fn.output_path == output_path:
        return fn.spec
    regions = None if forced_region is None else [forced_region.lower()]
    resolved: Callable[[str], Any] | None = None
    if isinstance(fn, RemoteCallable):
        resources = _placed(step.name, fn.resources, regions, dag_tpu_regions, config, output_path)
        call = ExecutorStepFunction(step, fn.fn, config, mirror_budget_gb)
        resolved = replace(fn, fn=call, resources=resources)
    elif fn is not None:
        resolved = ExecutorStepFunction(step, fn, config, mirror_budget_gb)
    placed = step.resources
    if placed is not None:
        placed = _placed(step.name, placed, regions, dag_tpu_regions, config, output_path)
    return StepSpec(
        name=step.name,
        deps=list(deps or ()),
        override_output_path=output_path,
        fn=resolved,
        resources=placed,
        retries=step.retries,
        retry_delay=step.retry_delay,
        timeout=step.timeout,
    )


def _placed(
    step_name: str,
    resources: ResourceConfig,
    forced: Sequence[str] | None,
    allowed: Sequence[str] | None,
    config: Any,
    output_path: str,
) -> ResourceConfig:
    """Return `resources` with the forced regions, or else with the allowed regions unless resources or paths determine
    the region.
    """
    if forced is not None:
        stated = None if resources.regions is None else [region.lower() for region in resources.regions]
        for known in (stated, None if allowed is None else [region.lower() for region in allowed]):
            if known is not None and forced[0] not in known:
                raise InvalidRequest(
                    f"step {step_name!r}: forced_region={forced[0]!r} is not among the regions where it may run: "
                    f"{', '.join(sorted(known))}"
                )
        return replace(resources, regions=list(forced))
    if not allowed or resources.regions is not None or resources.zone is not None:
        return resources
    if infer_region(step_name, config, output_path) is not None:
        return resources
    return replace(resources, regions=sorted(region.lower() for region in allowed))
