"""The config of a sweep's target, recorded in its directory, so that an id always means the same config."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from marin.execution.config.classes import classes_of
from marin.execution.config.encode import UnstableValue, encode, field_path
from marin.execution.config.step import InputName
from marin.execution.lease.status_file import StatusFile
from marin.execution.lease.status_words import STATUS_RUNNING, STATUS_SUCCESS
from marin.execution.record.provenance import class_differences, in_words
from marin.execution.version.canonical import strict
from marin.execution.version.differences import Difference, value_differences
from marin.output_files import TARGET_CONFIG_FILE
from rigging.errors import Conflict
from rigging.filesystem import read_bytes_or_none, write_bytes_atomic
from rigging.process.parallel import map_in_threads
from rigging.redaction import redact_value

logger = logging.getLogger(__name__)

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """A recorded config.

    Attributes:
        values: Its JSON form, secrets redacted.
        digest: The SHA-256 of the JSON form before redaction.
        classes: The classes of its objects (`classes_of`).
        left_out: Fields without a text that is stable across processes. They are not compared.
    """

    values: Any
    digest: str
    classes: dict[str, str]
    left_out: list[str]

    @classmethod
    def of(cls, config: Any) -> TargetConfig:
        """Describe a config."""
        left_out: list[str] = []
        values = strict(json.loads(json.dumps(_stable(config, "", left_out))))
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        return cls(redact_value(values), digest, classes_of(config), left_out)

    def write(self, path: str) -> None:
        """Record the config in a target's directory."""
        write_bytes_atomic(
            os.path.join(path, TARGET_CONFIG_FILE), json.dumps(dataclasses.asdict(self), indent=2).encode()
        )

    def differences(self, there: Mapping[str, Any]) -> list[Difference]:
        """Return the differences between a recorded config and this one."""
        found = class_differences(there.get("classes") or {}, self.classes)
        if there.get("digest") == self.digest:
            return found
        found += value_differences(there.get("values"), self.values)
        return found or [Difference("a secret", "another one", "this one")]


def check_targets(paths: Mapping[str, str], configs: Mapping[str, Any]) -> None:
    """Check that no target that is done or running has another config.

    Args:
        paths: The directory of each target, by id.
        configs: The config of each target, by id.

    Raises:
        Conflict: Some targets have another config. The message names all of them, and nothing has run.
    """
    records = dict(zip(paths, map_in_threads(_read_if_made, paths.values()), strict=True))
    made = {name: record for name, record in records.items() if record is not None}
    wanted = {name: TargetConfig.of(configs[name]) for name in made}
    found = {name: wanted[name].differences(record) for name, record in made.items() if record}
    differing = {name: differences for name, differences in found.items() if differences}
    if differing:
        raise Conflict(_refusal(differing))
    unrecorded = [name for name, record in made.items() if not record]
    if unrecorded:
        logger.info(
            "%d target(s) without a recorded config (such as %s) are not compared", len(unrecorded), unrecorded[0]
        )
    left_out = list(dict.fromkeys(field for config in wanted.values() for field in config.left_out))
    if left_out:
        logger.warning(
            "fields without a text that is stable across processes are not compared: %s (in existing targets)",
            ", ".join(left_out),
        )


def _refusal(differing: Mapping[str, Sequence[Difference]]) -> str:
    lines = [f"  {name}: {in_words(differences)}" for name, differences in list(differing.items())[:_SHOWN]]
    if len(differing) > _SHOWN:
        lines.append(f"  and {len(differing) - _SHOWN} more")
    return (
        f"{len(differing)} sweep target(s) are done or running with another config:\n"
        + "\n".join(lines)
        + "\nNothing has run. Give targets with another config new ids, or delete their directories"
    )


def _read_if_made(path: str) -> dict[str, Any] | None:
    """Return the record of a target that is done or running ({} without a record); None for other targets."""
    status = StatusFile(path)
    if status.status != STATUS_SUCCESS and not (status.status == STATUS_RUNNING and status.has_active_lock()):
        return None
    content = read_bytes_or_none(os.path.join(path, TARGET_CONFIG_FILE))
    try:
        record = {} if content is None else json.loads(content)
    except ValueError:
        logger.warning("%s: its %s cannot be read, so its config is not compared", path, TARGET_CONFIG_FILE)
        return {}
    return record if isinstance(record, dict) else {}


def _stable(value: Any, path: str, left_out: list[str]) -> Any:
    """Return the JSON form of a value, without parts that have no JSON form."""
    try:
        return encode(value, path, _reference)
    except UnstableValue:
        pass
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    elif isinstance(value, dict):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(f"[{index}]", item) for index, item in enumerate(value)]
    elif isinstance(value, (set, frozenset)):
        members = [_stable(item, path, left_out) for item in value]
        return sorted(members, key=lambda member: json.dumps(member, sort_keys=True))
    elif hasattr(value, "tobytes") and not getattr(getattr(value, "dtype", None), "hasobject", True):
        content = hashlib.sha256(value.tobytes()).hexdigest()  # a numpy array
        return {"dtype": str(value.dtype), "shape": list(value.shape), "sha256": content}
    else:
        left_out.append(path or "(config)")
        return None
    return {name: _stable(item, field_path(path, name), left_out) for name, item in items}


def _reference(reference: InputName) -> str:
    return f"{reference.step.name if reference.step is not None else ''}/{reference.name or ''}"
