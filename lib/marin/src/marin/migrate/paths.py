"""Find the steps of a script that have outputs in an existing bucket."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from marin.execution.explain import Explanation, PlannedAction
from rigging.filesystem import url_to_fs


def path_lines(explanations: Sequence[Explanation], prefix: str) -> list[str]:
    """Return lines that say whether each step of a script has an output in a bucket.

    Args:
        explanations: The result of `explain_steps` for the script.
        prefix: The bucket.
    """
    lines: list[str] = []
    counts: dict[str, int] = {}
    for explanation in explanations:
        word = _word(explanation)
        counts[word] = counts.get(word, 0) + 1
        lines.append(f"{word:<10}  {explanation.name}  {explanation.path}")
        if explanation.differences:
            where = "its output there" if explanation.nearest == explanation.path else explanation.nearest
            lines.append(f"              differs from {where} in")
            lines += [f"                {difference}" for difference in explanation.differences]
        elif word != "found":
            lines.append(f"              {explanation.reason}")
    summary = ", ".join(f"{count} {word}" for word, count in counts.items()) or "the script runs no steps"
    return [*lines, f"{len(explanations)} step(s) against {prefix}: {summary}"]


def any_output(explanations: Sequence[Explanation]) -> bool:
    """Return whether any step has an output, finished or not, or an earlier output under its name."""
    return any(_word(step) != "new" or step.nearest is not None for step in explanations)


def is_there(prefix: str) -> bool:
    """Return whether anything exists below a storage root."""
    fs, path = url_to_fs(prefix)
    return bool(fs.exists(path))


def traceback_of_script(error: Exception) -> str:
    """Return an error's traceback, starting at the script's first frame."""
    told = traceback.TracebackException.from_exception(error)
    runners = [index for index, frame in enumerate(told.stack) if "runpy" in frame.filename]
    del told.stack[: runners[-1] + 1 if runners else 0]
    return "".join(told.format()).rstrip("\n")


def _word(explanation: Explanation) -> str:
    if explanation.action is PlannedAction.CACHED:
        return "found"
    if explanation.reason.startswith(("no output", "its output path is pinned")):
        return "new"
    return "unfinished"
