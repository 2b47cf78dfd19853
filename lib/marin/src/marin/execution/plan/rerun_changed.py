"""Run changed code and keep the old outputs: steps whose code has changed write to `{output path}@TAG`."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Final

from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.plan.collision import PlannedStep, check_existing
from marin.execution.plan.plan import StepPlan
from marin.execution.record.info import StepText
from marin.execution.record.output_state import OutputStates, read_output_states, read_statuses
from marin.execution.step_spec import StepSpecFunction
from marin.execution.version.paths import check_path_length, tagged_path
from marin.execution.version.step_version import Step
from rigging.errors import InvalidRequest

logger = logging.getLogger(__name__)

# No dot: `.forced` and `.SUCCESS` at the end of a path have a meaning.
_TAG: Final = re.compile(r"[A-Za-z0-9_-]+")


def check_tag(tag: str, *, dry_run: bool, option: str = "rerun_changed") -> None:
    """Check the value of `rerun_changed`.

    Raises:
        InvalidRequest: The tag is not valid in a path, or the run does not read storage.
    """
    if not _TAG.fullmatch(tag):
        raise InvalidRequest(
            f"{option}={tag!r}: use only letters, digits, '-' and '_', such as {option}=fixed-tokenizer"
        )
    if dry_run:
        raise InvalidRequest(f"{option}={tag}: dry_run reads no storage, so it cannot detect changed code; use explain")


def states_of_steps(plan: StepPlan, steps: Sequence[Step]) -> OutputStates:
    """Return the state of each step's output path."""
    paths = plan.output_paths
    fixed = {paths[step] for step in steps if step.override_output_path is not None}
    return read_output_states([paths[step] for step in steps], fixed)


def planned_step(plan: StepPlan, step: Step) -> PlannedStep:
    """Return a step as planned for the run."""
    info = plan.info(step)
    return PlannedStep(step, plan.version_of(step), info.output_path, StepText.of(info).indented, info)


def move_changed(plan: StepPlan, chosen: Sequence[Step], states: OutputStates, tag: str) -> None:
    """Give the output path `{output path}@TAG` to finished steps whose code has changed, and to all their dependants.

    A step without an output gets this path, too, if that path has an output: the old output may have been deleted.

    Args:
        plan: The plan. Its paths and configs change.
        chosen: The steps of the run, each after its dependencies.
        states: The state of each output path.
        tag: The tag.

    Raises:
        InvalidRequest: A step to move was made from a `StepSpec`, whose function is bound to one path.
        Conflict: Another version has the output path of a step.
    """
    paths = plan.output_paths
    found = check_existing([planned_step(plan, step) for step in chosen], states)
    missing = [step for step in chosen if states[paths[step]].status != STATUS_SUCCESS]
    there = read_statuses(tagged_path(paths[step], tag) for step in missing)
    moved: dict[Step, None] = {}
    for step in chosen:
        is_changed = any(difference.is_code for difference in found.get(paths[step], ()))
        is_there = there.get(tagged_path(paths[step], tag)) == STATUS_SUCCESS
        if is_changed or is_there or not moved.keys().isdisjoint(plan.dependencies[step]):
            moved[step] = None
    specs = [step.name for step in moved if isinstance(step.fn, StepSpecFunction)]
    if specs:
        raise InvalidRequest(
            f"rerun_changed={tag}: step {specs[0]!r} was made from a StepSpec, whose function and dependants have its "
            f"path bound; replace its output with --force {specs[0]}, or give it other hash_attrs"
        )
    plan.move(dict.fromkeys(moved, tag))
    for step in moved:
        check_path_length(step.name, paths[step])
    logger.info(
        "rerun-changed: %d step(s) with changed code or inputs have output paths that end in @%s", len(moved), tag
    )
