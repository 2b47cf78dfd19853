"""Refuse collisions: two different versions with one output path, within a run or with storage."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from marin.execution.lease.status_words import STATUS_SUCCESS
from marin.execution.record.info import ExecutorStepInfo
from marin.execution.record.output_state import INFO_UNKNOWN, OutputState, md5_of, read_infos
from marin.execution.record.provenance import note_kinds, parse_info, provenance_differences
from marin.execution.version.canonical import strict, to_bytes
from marin.execution.version.differences import Difference, differences
from marin.execution.version.step_version import Step, StepVersion
from rigging.errors import Conflict

logger = logging.getLogger(__name__)

_SHOWN = 300


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step as planned for a run.

    Attributes:
        step: The step.
        version: Its version.
        output_path: Its output path.
        content: The content of its `.executor_info`.
        info: The same content, as fields.
    """

    step: Step
    version: StepVersion
    output_path: str
    content: bytes
    info: ExecutorStepInfo


def check_same_version(first: Step, one: StepVersion, second: Step, other: StepVersion, path: str) -> None:
    """Check that two steps with one output path have the same version.

    Args:
        first: A step.
        one: Its version.
        second: Another step.
        other: Its version.
        path: The output path of both, computed or fixed by `override_output_path`.

    Raises:
        Conflict: The versions differ. The message names both steps.
    """
    if one.digest == other.digest:
        return
    message = (
        f"two different versions have the output path {path}: step {first.name!r} ({describe(one)}) and "
        f"step {second.name!r} ({describe(other)})"
    )
    raise Conflict(f"{message}; rename one of them, or give one a separate override_output_path")


def check_existing(planned: Sequence[PlannedStep], states: Mapping[str, OutputState]) -> dict[str, list[Difference]]:
    """Check that no output path has another version in its `.executor_info`.

    Args:
        planned: The steps of the run.
        states: The state of each output path.

    Returns:
        Differences by output path, for finished outputs made with other unversioned values or code. At a path fixed by
        `override_output_path` they include version differences.

    Raises:
        Conflict: An output path has another version. The message names both.
    """
    records = [(item, _record_of(item, states[item.output_path])) for item in planned]
    _note_older([item.output_path for item, record in records if record is _Record.WITHOUT_CLASSES])
    doubtful = [item for item, record in records if record is _Record.DOUBTFUL]
    infos = read_infos([item.output_path for item in doubtful])
    found: dict[str, list[Difference]] = {}
    for item in doubtful:
        content = infos[item.output_path]
        differing = [] if content is None else _compare(item, content)
        if differing and states[item.output_path].status == STATUS_SUCCESS:
            found[item.output_path] = differing
    return found


class _Record(Enum):
    """The relation of an output's record to a planned step."""

    SAME = "same"
    WITHOUT_CLASSES = "without classes"
    """Written before classes were recorded; otherwise equal."""
    DOUBTFUL = "doubtful"


def _record_of(item: PlannedStep, state: OutputState) -> _Record:
    if state.info_md5 is None:
        return _Record.SAME
    if state.info_md5 == INFO_UNKNOWN:
        return _Record.SAME if state.status is None else _Record.DOUBTFUL
    if state.info_md5 == md5_of(item.content):
        return _Record.SAME
    identity = item.info.identity()
    if item.info.reached and state.info_md5 == md5_of(to_bytes(item.info.content_without_reached(identity))):
        return _Record.SAME
    older = (item.info.content_without_classes(identity), identity)
    # Earlier releases recorded fewer keys; when those agree, the file has nothing more to compare.
    if any(state.info_md5 == md5_of(to_bytes(content)) for content in older):
        return _Record.WITHOUT_CLASSES if state.status == STATUS_SUCCESS else _Record.SAME
    return _Record.DOUBTFUL


def _note_older(paths: Sequence[str]) -> None:
    if paths:
        logger.info(
            "%d output(s) were recorded without the classes of their configs, such as %s: whether their objects' "
            "classes differ is unknown", len(paths), paths[0],
        )  # fmt: skip


def _compare(item: PlannedStep, content: bytes) -> list[Difference]:
    there = parse_info(content)
    if there is not None and isinstance(there.get("classes"), dict):
        note_kinds(item.output_path, there["classes"], item.info.classes)
    if there is None:
        logger.warning("%s: unreadable .executor_info; which step made this output is unknown", item.output_path)
        return []
    if "version" not in there:  # written by a release that did not record it
        return provenance_differences(there, item.info)
    version = there["version"]
    # A bare step spec has no version of this kind. Equal ones differ in parts that are not versioned.
    if not version or _canonical(version) == _canonical(json.loads(json.dumps(item.info.version))):
        return provenance_differences(there, item.info)
    name = there.get("name")
    config = version.get("config") if isinstance(version, dict) else version
    message = (
        f"step {item.step.name!r} ({describe(item.version)}) has the output path {item.output_path}, which holds "
        f"another version: step {name!r} (config {_short(config)})"
    )
    if item.step.override_output_path is not None or there.get("override_output_path") is not None:
        logger.warning("%s; it is fixed by override_output_path", message)
        of_version = differences(version, item.info.version) if isinstance(version, dict) else []
        return of_version + provenance_differences(there, item.info)
    hashed = hashlib.md5(json.dumps(version, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
    if name == item.step.name and hashed.startswith(item.version.hash_id):
        message += f"; both hash to {item.version.hash_id}"
    raise Conflict(
        f"{message}. Nothing has run. Rename the step, give it a separate override_output_path, or delete that path "
        "if you do not need its output"
    )


def _canonical(version: Any) -> str:
    return json.dumps(strict(version), sort_keys=True)


def describe(version: StepVersion) -> str:
    """Return a short description of a version: its digest and its config."""
    return f"version {version.digest}, config {_short(version.version['config'])}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
