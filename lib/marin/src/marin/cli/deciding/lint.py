"""Findings in a script's steps: values that are not versioned, and values that name a region."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from marin.execution.config.regions import region_paths

_OWN_PATH: Final = "this_output_path("
_LONGEST: Final = 100


class Rule(StrEnum):
    """Kinds of findings."""

    UNVERSIONED = "unversioned"
    """The value is neither versioned nor an input, so a changed value does not produce a new output."""
    REGION_VERSIONED = "region-versioned"
    """The version names the bucket of one region, so the pipeline restarts from scratch in another region."""
    REGION = "region"
    """An unversioned value names the bucket of one region: the step reads from that region wherever it runs."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The parts of a step that lint checks.

    Attributes:
        name: The step's name.
        versioned: The "config" of its version: dotted path to encoded value.
        unversioned: The values that are not versioned (`unversioned_part`), secrets redacted.
    """

    name: str
    versioned: Mapping[str, Any]
    unversioned: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One suspicious value.

    Attributes:
        rule: The rule that it breaks.
        step: The step's name.
        field: The dotted path in its config.
        value: The value, as JSON text.
        advice: A suggested replacement.
    """

    rule: Rule
    step: str
    field: str
    value: str
    advice: str

    def to_json(self) -> dict[str, Any]:
        """Return the finding as an entry of `marin lint --json`."""
        return {
            "rule": str(self.rule),
            "step": self.step,
            "field": self.field,
            "value": self.value,
            "advice": self.advice,
        }


def lint_steps(steps: Sequence[StepFacts], ignored: Sequence[str] = ()) -> list[Finding]:
    """Return the findings, in the order of the steps.

    Args:
        steps: The steps.
        ignored: Patterns (`fnmatch`) of fields, or of `step:field`, to skip.
    """
    return [
        finding
        for step in steps
        for finding in _findings(step)
        if not any(
            fnmatch.fnmatchcase(text, pattern)
            for pattern in ignored
            for text in (finding.field, f"{finding.step}:{finding.field}")
        )
    ]


def _findings(step: StepFacts) -> Iterator[Finding]:
    for field, value in step.versioned.items():
        for path, region in region_paths(value):
            advice = f"the step starts over outside {region}; {_relative_advice(path)}"
            yield Finding(Rule.REGION_VERSIONED, step.name, field, _text(path), advice)
    for field, value in leaves(step.unversioned) if step.unversioned else ():
        if isinstance(value, str) and value.startswith(_OWN_PATH):
            continue  # follows from the output path
        regions = list(region_paths(value))
        for path, region in regions:
            advice = f"the step reads it from {region} wherever it runs; {_relative_advice(path)}"
            yield Finding(Rule.REGION, step.name, field, _text(path), advice)
        advice = "wrap it in versioned() if it changes the result"
        yield Finding(Rule.UNVERSIONED, step.name, field, _text(value), advice)


def leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the leaf values of nested dicts and lists, each with its dotted path. Empty dicts and lists count as
    leaves.
    """
    pending = [("", value)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, Mapping) and item:
            parts = [(f"{where}.{key}" if where else str(key), part) for key, part in item.items()]
        elif isinstance(item, (list, tuple)) and item:
            parts = [(f"{where}.[{index}]", part) for index, part in enumerate(item)]
        else:
            yield where, item
            continue
        pending += reversed(parts)


def _relative_advice(path: str) -> str:
    below = path.split("://", 1)[1].partition("/")[2]
    return f"write it relative to the prefix: InputName.hardcoded({below!r}), or mirrored(versioned({below!r}))"


def _text(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
