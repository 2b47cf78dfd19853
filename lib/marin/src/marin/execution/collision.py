"""Two different versions with one output path: found before anything runs, in one run or against what is in storage."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin.execution.standing import INFO_UNKNOWN, Standing, md5_of, read_infos
from marin.execution.version import Step, StepVersion
from rigging.errors import Conflict

logger = logging.getLogger(__name__)

_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Planned:
    """A step as this run would make it.

    Attributes:
        step: The step.
        version: Its version.
        output_path: Its output path.
        info: The content that its `.executor_info` would have.
        written_version: The version that is in there.
    """

    step: Step
    version: StepVersion
    output_path: str
    info: bytes
    written_version: Mapping[str, Any]


def check_same_version(first: Step, one: StepVersion, second: Step, other: StepVersion, path: str) -> None:
    """Refuse two steps of different versions at one output path, also where `override_output_path` pins them to it.

    Raises:
        Conflict: naming both.
    """
    if one.digest == other.digest:
        return
    message = (
        f"two different versions have the output path {path}: step {first.name!r} ({describe(one)}) and "
        f"step {second.name!r} ({describe(other)})"
    )
    raise Conflict(f"{message}; rename one of them, or give one an override_output_path of its own")


def check_existing(planned: Sequence[Planned], standings: Mapping[str, Standing]) -> None:
    """Refuse output paths that hold another version, as their `.executor_info` says.

    Raises:
        Conflict: naming both.
    """
    doubtful = [item for item in planned if _is_doubtful(item, standings[item.output_path])]
    infos = read_infos([item.output_path for item in doubtful])
    for item in doubtful:
        content = infos[item.output_path]
        if content is not None:
            _compare(item, content)


def _is_doubtful(item: Planned, standing: Standing) -> bool:
    if standing.info_md5 is None:
        return False
    if standing.info_md5 == INFO_UNKNOWN:
        return standing.status is not None
    return standing.info_md5 != md5_of(item.info)


def _compare(item: Planned, content: bytes) -> None:
    try:
        there = json.loads(content)
        version = there["version"]
    except (ValueError, KeyError, TypeError):
        logger.warning("%s: unreadable .executor_info; whose output this is cannot be told", item.output_path)
        return
    # A bare step spec has no version of this kind. Equal ones differ in parts that are not versioned.
    if not version or _canonical(version) == _canonical(json.loads(json.dumps(item.written_version))):
        return
    name = there.get("name")
    config = version.get("config") if isinstance(version, dict) else version
    message = (
        f"step {item.step.name!r} ({describe(item.version)}) has the output path {item.output_path}, which holds "
        f"another version: step {name!r} (config {_short(config)})"
    )
    if item.step.override_output_path is not None or there.get("override_output_path") is not None:
        logger.warning("%s; it is fixed by override_output_path", message)
        return
    hashed = hashlib.md5(_canonical(version).encode(), usedforsecurity=False).hexdigest()
    if name == item.step.name and hashed.startswith(item.version.hash_id):
        message += f"; both hash to {item.version.hash_id}"
    raise Conflict(
        f"{message}. Nothing has run. Rename the step, give it an override_output_path of its own, or delete that path "
        "if what is there is not wanted"
    )


def _canonical(version: Any) -> str:
    return json.dumps(version, sort_keys=True)


def describe(version: StepVersion) -> str:
    """A version in a few words."""
    return f"version {version.digest}, config {_short(version.version['config'])}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
