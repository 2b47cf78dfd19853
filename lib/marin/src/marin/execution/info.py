"""What is written down about steps and runs, for people and tools that read the storage later."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import getpass
import hashlib
import inspect
import json
import os
import pathlib
import subprocess
from dataclasses import dataclass
from typing import Any

from marin.execution.version import StepVersion

STEP_INFO_FILE = ".executor_info"

# Modules whose frames lie between a script and the executor.
_OWN_MODULES = ("marin", "draccus")


@dataclass(frozen=True, slots=True)
class ExecutorStepInfo:
    """One step as it was run.

    Attributes:
        name: The step's name.
        fn_name: Its function, `module.qualified_name`.
        config: Its config as the function sees it.
        description: For people; not written to the step's own file.
        override_output_path: The fixed output path, if any.
        version: The step's version; dependencies as `{name}-{hash}` where writing them out would be very long.
        dependencies: Output paths of the steps it waited for, one per reference.
        output_path: Where its output is.
    """

    name: str
    fn_name: str
    config: Any
    description: str | None
    override_output_path: str | None
    version: dict[str, Any]
    dependencies: list[str]
    output_path: str

    def to_json(self) -> dict[str, Any]:
        """The content of `.executor_info`."""
        fields = {
            item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "description"
        }
        return {name: plain(value) for name, value in fields.items()}


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """One run: who ran which steps from where."""

    worker_id: str
    git_commit: str | None
    caller_path: str
    created_date: str
    user: str
    prefix: str
    description: str | None
    steps: list[ExecutorStepInfo]

    def to_json(self) -> dict[str, Any]:
        """The content of the run's info file."""
        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "steps"}
        return {**fields, "steps": [step.to_json() for step in self.steps]}

    def file_name(self) -> str:
        """`{script name}-{6 hex}.json`; the digits follow from the steps alone."""
        steps = json.dumps([step.to_json() for step in self.steps], sort_keys=True)
        digest = hashlib.md5(steps.encode(), usedforsecurity=False).hexdigest()
        return f"{pathlib.PurePath(self.caller_path).stem}-{digest[:6]}.json"


def to_bytes(content: dict[str, Any]) -> bytes:
    """An info file's text."""
    return json.dumps(content, indent=2).encode()


def bounded_version(version: StepVersion, hashed_names: list[str], pseudo_hashed_names: list[str]) -> dict[str, Any]:
    """The version, its dependencies by name and hash when their texts are so long that the version shares them."""
    if version.text.is_flat:
        return version.version
    short = {**version.version, "dependencies": hashed_names}
    if pseudo_hashed_names:
        short["pseudo_dependencies"] = pseudo_hashed_names
    return short


def plain(value: Any) -> Any:
    """A JSON form of any config, for reading: what has none becomes its text."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, datetime.timedelta):
        return {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    return str(value)


def _key(key: Any) -> Any:
    plain_key = key.value if isinstance(key, enum.Enum) else key
    return plain_key if plain_key is None or isinstance(plain_key, (str, int, float)) else str(plain_key)


def caller_path() -> str:
    """The file of the code that called the executor; `<stdin>`-like names as they are."""
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OWN_MODULES:
            return frame.f_code.co_filename
        frame = frame.f_back
    return "<unknown>"


def git_commit(directory: str) -> str | None:
    """The commit that is checked out around a directory; None outside a checkout or without git."""
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=directory, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


def user_name() -> str:
    """The user's name; `uid-{number}` for an id without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def now_text() -> str:
    """The local time with its offset, ISO 8601."""
    return datetime.datetime.now().astimezone().isoformat()
