"""Compare the provenance of an output (unversioned values and code) with a current step."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from marin.execution.config.classes import is_kind
from marin.execution.record.info import ExecutorStepInfo
from marin.execution.record.output_state import read_infos
from marin.execution.record.reach import reach_differences
from marin.execution.version.canonical import strict as strict_json
from marin.execution.version.differences import WHAT_TO_TYPE, Difference, value_differences
from rigging.errors import Conflict
from rigging.redaction import redact_value

logger = logging.getLogger(__name__)

_SHOWN_STEPS = 20
_SHOWN_DIFFERENCES = 10


def parse_info(content: bytes | None) -> dict[str, Any] | None:
    """Return the content of a stored `.executor_info`; None if it is missing or not a JSON object."""
    try:
        info = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
    return info if isinstance(info, dict) else None


def provenance_differences(there: Mapping[str, Any], info: ExecutorStepInfo) -> list[Difference]:
    """Return the unversioned values, classes and code in which an output and a step of equal version differ.

    Args:
        there: The `.executor_info` of the output. Keys that an earlier release did not record are not compared.
        info: The current step.
    """
    found: list[Difference] = []
    old = there.get("unversioned")
    if isinstance(old, dict):
        found += value_differences(strict_json(old), strict_json(redact_value(info.unversioned)))
    old_classes = there.get("classes")
    if isinstance(old_classes, dict):
        found += class_differences(old_classes, info.classes)
    return found + code_differences(there, info.source, info.reached)


def code_differences(
    there: Mapping[str, Any], source: Mapping[str, str], reached: Mapping[str, Any]
) -> list[Difference]:
    """Return the parts of a function, and the code it reaches in other modules, that differ from an output's record.

    Args:
        there: The `.executor_info` of the output.
        source: The parts of the function (`function_source`).
        reached: The code that it reaches (`recorded_reach`).
    """
    return source_differences(there, source) + reach_differences(there.get("reached"), reached)


def class_differences(old: Mapping[str, Any], new: Mapping[str, str]) -> list[Difference]:
    """Return the places of a config where objects with equal values have different classes."""
    return [
        Difference(f"class of {place}", str(old[place]), new[place])
        for place in _changed(old, new)
        if not is_kind(old.get(place)) and not is_kind(new.get(place))
    ]


def note_kinds(path: str, old: Mapping[str, Any], new: Mapping[str, str]) -> None:
    """Log the places of a config with different spellings of one value: a path as text, a list as a tuple."""
    found = [place for place in _changed(old, new) if is_kind(old.get(place)) or is_kind(new.get(place))]
    if found:
        ways = (f"{place}: {_way(old.get(place))} and {_way(new.get(place))}" for place in found[:_SHOWN_DIFFERENCES])
        logger.info("%s: one version, but different spellings of values: %s", path, "; ".join(ways))


def _way(name: object) -> str:
    return "plain" if name is None else str(name).removeprefix("kind ")


def source_differences(there: Mapping[str, Any], now: Mapping[str, str]) -> list[Difference]:
    """Return the parts of a function (`function_source`) that differ from an output's record."""
    old = there.get("source")
    if not isinstance(old, dict) or not old or not now:
        return []
    return [_of_source(name, old, now) for name in _changed(old, now)]


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys([*new, *old]) if old.get(name) != new.get(name)]


def _of_source(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
    before, after = old.get(name), new.get(name)
    is_code = str(before if before is not None else after).startswith("source ")
    if not is_code:
        return Difference(name, before, after, is_code=True)
    return Difference(
        f"source of {name}",
        None if before is None else str(before).removeprefix("source "),
        None if after is None else str(after).removeprefix("source "),
        is_code=True,
    )


def compared(output_path: str, info: ExecutorStepInfo, strict: bool) -> list[Difference]:
    """Return the provenance differences of an output that another run has made meanwhile.

    Args:
        output_path: The output path.
        info: The step of this run.
        strict: Whether differences are an error.

    Raises:
        Conflict: `strict` is on and there are differences.
    """
    there = parse_info(read_infos([output_path])[output_path])
    found = [] if there is None else provenance_differences(there, info)
    if strict:
        refuse_differences({output_path: found})
    return found


def in_words(found: Sequence[Difference]) -> str:
    """Return differences on one line: `k: 10 -> 99; source of train: 0a1b -> 2c3d`."""
    return "; ".join(str(difference) for difference in found)


def report_merged(merged: Mapping[str, Sequence[Difference]], strict: bool) -> None:
    """Warn about steps of one version that differ in unversioned values or code: only the first of them runs.

    Args:
        merged: The differences, by output path.
        strict: Whether differences are an error.

    Raises:
        Conflict: `strict` is on and there are differences. Nothing has run.
    """
    lines = [
        f"{path}: several steps of this run have this version but differ in unversioned parts ({_begin(found)}), "
        "so only the first of them is run; make relevant values versioned(), or give the steps different names"
        for path, found in merged.items()
    ]
    if strict and lines:
        raise Conflict("strict: nothing has run: " + "\n".join(lines[:_SHOWN_STEPS]))
    for line in lines[:_SHOWN_STEPS]:
        logger.warning("%s", line)


def _begin(found: Sequence[Difference]) -> str:
    """Return the first differences on one line. A sweep of a thousand points may have thousands."""
    rest = len(found) - _SHOWN_DIFFERENCES
    return in_words(found[:_SHOWN_DIFFERENCES]) + (f"; and {rest} more" if rest > 0 else "")


def refuse_differences(found: Mapping[str, Sequence[Difference]]) -> None:
    """Check that no finished output differs in its provenance.

    Args:
        found: Differences by output path.

    Raises:
        Conflict: There are differences. The message names them and says what to do.
    """
    differing = {path: differences for path, differences in found.items() if differences}
    if not differing:
        return
    lines = [f"  {path}: {in_words(differences)}" for path, differences in list(differing.items())[:_SHOWN_STEPS]]
    if len(differing) > _SHOWN_STEPS:
        lines.append(f"  and {len(differing) - _SHOWN_STEPS} more; --explain lists all")
    raise Conflict(
        f"strict: {len(differing)} output(s) that are there were made otherwise than this run would make them:\n"
        + "\n".join(lines)
        + f"\nNothing of them has run. {WHAT_TO_TYPE}. Make relevant values versioned(), or run without strict"
    )
