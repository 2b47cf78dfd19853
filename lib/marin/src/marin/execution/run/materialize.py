"""Run the steps that a config refers to, outside of any experiment: for notebooks and code inside a step."""

from __future__ import annotations

import os
from typing import TypeVar

from marin.execution.config.instantiate import instantiate_config
from marin.execution.config.prefix import prefix_or_default
from marin.execution.config.values import OutputName
from marin.execution.config.walk import collect_dependencies_and_version
from marin.execution.run.pipeline import Executor
from rigging.errors import InvalidRequest

T = TypeVar("T")


class UnresolvedPath(InvalidRequest, TypeError):
    """A placeholder is used where a path is needed."""


def materialize(config: T, *, prefix: str | None = None, output_path: str | None = None) -> T:
    """Run the steps that a config refers to, and return the config with its placeholders filled in.

    Args:
        config: Any nesting that a step's config allows.
        prefix: The storage root. Defaults to the process's own prefix.
        output_path: The value of `this_output_path()`; required if the config contains it.

    Raises:
        StepFailed: A step that the config refers to failed.
        UnresolvedPath: (a TypeError) `output_path` is itself a placeholder.
        InvalidRequest: The config contains `this_output_path()`, and there is no `output_path`.
    """
    if isinstance(output_path, OutputName):
        raise UnresolvedPath(f"materialize(output_path={output_path!r}): give the path itself, a str")
    root = prefix_or_default(prefix)
    collected = collect_dependencies_and_version(config)
    executor = Executor(root, os.path.join(root, "experiments"))
    for step in collected.pseudo_dependencies:
        executor.compute_version(step, is_pseudo_dep=True)
    if collected.dependencies:
        executor.run(list(dict.fromkeys(collected.dependencies)))
    return instantiate_config(config, output_path, executor.output_paths, root)
