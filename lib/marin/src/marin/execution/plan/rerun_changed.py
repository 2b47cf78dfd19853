"""Runs of changed code that keep the old outputs: `{output path}@TAG` for steps whose code has changed."""

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
        InvalidRequest: It cannot be a part of a path's last name, or the run reads no storage.
    """
    if not _TAG.fullmatch(tag):
        raise InvalidRequest(
            f"{option}={tag!r}: a tag has letters, digits, '-' and '_' only, such as {option}=fixed-tokenizer"
        )
    if dry_run:
        raise InvalidRequest(f"{option}={tag}: dry_run reads no storage, so it cannot tell changed code; use explain")


def states_of_steps(plan: StepPlan, steps: Sequence[Step]) -> OutputStates:
    """Return the state of each step's output path."""
    paths = plan.output_paths
    fixed = {paths[step] for step in steps if step.override_output_path is not None}
    return read_output_states([paths[step] for step in steps], fixed)


def planned_step(plan: StepPlan, step: Step) -> PlannedStep:
    """Return a step as a run would make it."""
    info = plan.info(step)
    return PlannedStep(step, plan.version_of(step), info.output_path, StepText.of(info).indented, info)


def move_changed(plan: StepPlan, chosen: Sequence[Step], states: OutputStates, tag: str) -> None:
    """Give the output path `{output path}@TAG` to finished steps of other code, and to all that depend on them.

    A step without an output has it, too, if one is there: its old output may have been deleted.

    Args:
        plan: The plan. Its paths and configs change.
        chosen: The steps of the run, each after its dependencies.
        states: The state of each output path.
        tag: The tag.

    Raises:
        InvalidRequest: A step to move was made from a `StepSpec`, whose function knows one path only.
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
    logger.info("rerun-changed: %d step(s) of other code or inputs have output paths that end in @%s", len(moved), tag)
