"""The output path of a step."""

from __future__ import annotations

import logging
from typing import Any

from marin.execution.config.prefix import prefix_or_default, under_prefix
from marin.execution.config.step import ExecutorStep
from marin.execution.version.step_version import Step, StepVersion, VersionCache
from rigging.filesystem.location import path_in

logger = logging.getLogger(__name__)


def output_path_for(step: Step, version: StepVersion, prefix: str) -> str:
    """Return the output path of a step; warn when an override differs from the computed path.

    Args:
        step: The step.
        version: Its version.
        prefix: The storage root.
    """
    computed = path_in(prefix, version.hashed_name)
    if step.override_output_path is None:
        return computed
    override = under_prefix(prefix, step.override_output_path)
    if override.rstrip("/") != computed:
        logger.warning(
            "step %r: output path %s is fixed by override_output_path; its version would be at %s",
            step.name,
            override,
            computed,
        )
    return override


def compute_output_path(
    name: str, config: Any, *, override_output_path: str | None = None, prefix: str | None = None
) -> str:
    """Return the output path that a step of this name and config has.

    Args:
        name: The step's name.
        config: Its config, placeholders and all.
        override_output_path: A fixed path to use instead (joined to the prefix when relative).
        prefix: The storage root; the process's own prefix by default.

    Raises:
        InvalidRequest: the name would leave the prefix, or a versioned value has no stable encoding.
    """
    step = ExecutorStep[Any](name=name, fn=None, config=config, override_output_path=override_output_path)
    return output_path_for(step, VersionCache().version_of(step), prefix_or_default(prefix))
