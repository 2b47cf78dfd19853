"""Which steps are meant: the wanted ones with all that they need, or those whose names match regexes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from marin.execution.graph import reachable
from marin.execution.plan import Plan
from marin.execution.step import ExecutorStep
from marin.execution.version import Step
from rigging.errors import InvalidRequest


def checked_steps(steps: Iterable[Step]) -> list[Step]:
    """What an experiment was given as its steps.

    Raises:
        InvalidRequest: It is one step instead of a list, or has something that is none.
    """
    if isinstance(steps, ExecutorStep):
        raise InvalidRequest(f"run(steps=...): {steps!r} is one step, not a list of them; write steps=[step]")
    found = list(steps)
    for step in found:
        if not isinstance(step, ExecutorStep):
            raise InvalidRequest(f"run(steps=...): {step!r} is a {type(step).__name__}, not an ExecutorStep")
    return found


def chosen_steps(plan: Plan, steps: Sequence[Step], run_only: Sequence[str] | None) -> list[Step]:
    """The (canonical) steps to run, each after its dependencies.

    Args:
        plan: Has taken all of them in.
        steps: The steps wanted; what they depend on comes with them.
        run_only: Of these, only those whose name matches one of these regexes (`re.search`), with what they need.

    Raises:
        InvalidRequest: `run_only` has something that is no regex, or matches no step.
    """
    needed = reachable([plan.canonicalize(step) for step in steps], plan.dependencies.__getitem__)
    if run_only is not None:
        needed = reachable(matching_steps(needed, run_only, "run_only"), plan.dependencies.__getitem__)
    return [step for step in plan.output_paths if step in needed]


def matching_steps(steps: Iterable[Step], patterns: Sequence[str], option: str) -> list[Step]:
    """The steps whose name matches one of the regexes (`re.search`).

    Raises:
        InvalidRequest: Something is no regex, or nothing matches; `option` is what the message calls them.
    """
    check_patterns(patterns, option)
    every = list(steps)
    found = [step for step in every if any(re.search(pattern, step.name) for pattern in patterns)]
    if not found:
        names = ", ".join(sorted({step.name for step in every})) or "none"
        raise InvalidRequest(f"{option}={list(patterns)}: no step has such a name; there are: {names}")
    return found


def check_patterns(patterns: Iterable[str], option: str) -> None:
    """Refuse what is not a list of regexes.

    Raises:
        InvalidRequest: naming the option and the pattern.
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
