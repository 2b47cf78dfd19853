"""Select steps: the requested ones with their dependencies, or those whose names match regular expressions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from marin.execution.config.step import ExecutorStep
from marin.execution.plan.plan import StepPlan
from marin.execution.version.graph import reachable
from marin.execution.version.step_version import Step
from rigging.errors import InvalidRequest

# Names that a message lists; an experiment may have thousands.
_SHOWN_NAMES: Final = 30


class NoSuchStep(InvalidRequest):
    """No step has a requested name."""


def check_steps(steps: Iterable[Step]) -> list[Step]:
    """Return the steps given to a run as a list.

    Raises:
        InvalidRequest: `steps` is a single step instead of a list, or has an item that is not a step.
    """
    if isinstance(steps, ExecutorStep):
        raise InvalidRequest(f"run(steps=...): {steps!r} is one step, not a list of them; write steps=[step]")
    found = list(steps)
    for step in found:
        if not isinstance(step, ExecutorStep):
            raise InvalidRequest(f"run(steps=...): {step!r} is a {type(step).__name__}, not an ExecutorStep")
    return found


def select_steps(plan: StepPlan, steps: Sequence[Step], run_only: Sequence[str] | None) -> list[Step]:
    """Select the requested steps and their dependencies.

    Args:
        plan: The plan, which already contains all of them.
        steps: The requested steps. Their dependencies are included.
        run_only: Keep only the steps whose name matches one of these regexes (`re.search`), with their dependencies.
            Steps named by non-blocking inputs count, too.

    Raises:
        InvalidRequest: `run_only` has an item that is not a regex, or matches no step.
    """
    roots = [plan.canonicalize(step) for step in steps]
    if run_only is not None:
        roots = matching_steps(reachable(roots, plan.references), run_only, "run_only")
    needed = reachable(roots, plan.dependencies.__getitem__)
    return [step for step in plan.output_paths if step in needed]


def matching_steps(steps: Iterable[Step], patterns: Sequence[str], option: str) -> list[Step]:
    """Return the steps whose name matches one of the regexes.

    Args:
        steps: The steps to choose from.
        patterns: Regexes, matched with `re.search`.
        option: The option's name, for messages.

    Raises:
        InvalidRequest: A pattern is not a regex, or (`NoSuchStep`) nothing matches.
    """
    check_patterns(patterns, option)
    every = list(steps)
    found = [step for step in every if any(re.search(pattern, step.name) for pattern in patterns)]
    if not found:
        raise NoSuchStep(_no_such_step(sorted({step.name for step in every}), patterns, option))
    return found


def _no_such_step(names: Sequence[str], patterns: Sequence[str], option: str) -> str:
    by_lower = {name.lower(): name for name in names}
    nearest: list[str] = []
    for pattern in patterns:
        nearest += [name for name in names if re.search(pattern, name, re.IGNORECASE)]
        plain = re.sub(r"[\^$\\]", "", pattern).lower()
        nearest += [by_lower[name] for name in difflib.get_close_matches(plain, by_lower, n=3)]
    hint = f"; did you mean {' or '.join(list(dict.fromkeys(nearest))[:3])}?" if nearest else ""
    shown = ", ".join(names[:_SHOWN_NAMES]) or "none"
    rest = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"{option}={list(patterns)}: no step has such a name{hint}; steps are: {shown}{rest}"


def check_patterns(patterns: Iterable[str], option: str) -> None:
    """Check that `patterns` is a list of regexes.

    Raises:
        InvalidRequest: `patterns` is not a list of regexes. The message names the option and the pattern.
    """
    if isinstance(patterns, str):
        raise InvalidRequest(
            f"{option}={patterns!r} is one text, not a list of regular expressions; write [{patterns!r}]"
        )
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidRequest(f"{option}: {pattern!r} is not a regular expression: {error}") from None
