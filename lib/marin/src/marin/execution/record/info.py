"""Info files of steps and runs, for people and tools that read the storage later."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import inspect
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from marin.execution.config.visitor import ConfigVisitor, dataclass_field_names
from marin.execution.report.shell import notebook_of
from marin.execution.version.canonical import canonical_text, indented_text, to_bytes
from marin.execution.version.step_version import StepVersion
from marin.output_files import INFO_FILE
from rigging.redaction import redact_value
from rigging.text.printable import text_of
from rigging.user import user_name as user_name

STEP_INFO_FILE = INFO_FILE

# Where an object of a config lies in memory differs from run to run.
_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")
_PLAIN_TYPES = frozenset({bool, int, float, str, type(None)})

# Modules whose frames lie between a script and the executor.
_OWN_MODULES = ("marin", "draccus")


@dataclass(frozen=True, slots=True)
class ExecutorStepInfo:
    """A step of a run.

    Attributes:
        name: The step's name.
        fn_name: Its function, `module.qualified_name`.
        config: Its config, in the form for its function.
        description: Its purpose; not written to the step's own file.
        override_output_path: The fixed output path, if any.
        version: The step's version, with dependencies as `{name}-{hash}` if it would be very long.
        dependencies: Output paths of its blocking dependencies, one per reference.
        output_path: Its output path.
        unversioned: The values of its config that are neither versioned nor inputs (`unversioned_part`).
        source: The parts of its function (`function_source`).
        classes: The classes of its config's objects (`classes_of`).
        reached: The code that its function reaches in the user's other modules (`recorded_reach`).
    """

    name: str
    fn_name: str
    config: Any
    description: str | None
    override_output_path: str | None
    version: dict[str, Any]
    dependencies: list[str]
    output_path: str
    unversioned: dict[str, Any] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    reached: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the content of `.executor_info`, with secrets in unversioned values redacted."""
        return self.content(self.identity())

    def content(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the content of `.executor_info`, given the result of `identity()`."""
        found = self.content_without_reached(identity)
        # Without the key where nothing is reached: most records are as the first release wrote them.
        if self.reached:
            found["reached"] = self.reached
        return found

    def content_without_reached(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the content of `.executor_info` in the form from before code of other modules was recorded."""
        return {**self.content_without_classes(identity), "classes": self.classes}

    def content_without_classes(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Return the content of `.executor_info` in the form from before classes were recorded."""
        config, unversioned = redact_value(identity["config"]), redact_value(self.unversioned)
        return {**identity, "config": config, "unversioned": unversioned, "source": self.source}

    def identity(self) -> dict[str, Any]:
        """Return the keys that determine the name of a run's info file: the keys of the first release."""
        return {
            "name": self.name,
            "fn_name": self.fn_name,
            "config": plain(self.config),
            "override_output_path": self.override_output_path,
            "version": self.version,
            "dependencies": self.dependencies,
            "output_path": self.output_path,
        }


@dataclass(frozen=True, slots=True)
class ExecutorInfo:
    """A run: its user, machine, script and steps."""

    worker_id: str
    git_commit: str | None
    caller_path: str
    created_date: str
    user: str
    prefix: str
    description: str | None
    steps: list[ExecutorStepInfo]

    def to_json(self) -> dict[str, Any]:
        """Return the content of the run's info file."""
        return {**self._head(), "steps": [step.to_json() for step in self.steps]}

    def to_bytes(self, steps: Sequence[StepText]) -> bytes:
        """Return the text of the run's info file, assembled from the texts of its steps."""
        head = indented_text(self._head(), "\n").removesuffix("\n}").encode()
        texts = b",\n    ".join([step.indented.replace(b"\n", b"\n    ") for step in steps])
        return b"".join([head, b',\n  "steps": ', b"[\n    %b\n  ]" % texts if steps else b"[]", b"\n}"])

    def file_name(self, steps: Sequence[StepText]) -> str:
        """Return `{script name}-{6 hex}.json`. The hash depends only on the steps."""
        text = "[" + ", ".join(_ADDRESS.sub("", step.canonical) for step in steps) + "]"
        digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        return f"{pathlib.PurePath(self.caller_path).stem}-{digest[:6]}.json"

    def _head(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "steps"}


@dataclass(frozen=True, slots=True)
class StepText:
    """The two JSON texts of one step's info.

    Attributes:
        indented: The content of its `.executor_info`.
        canonical: Its identity (`ExecutorStepInfo.identity`) on one line with sorted keys.
    """

    indented: bytes
    canonical: str

    @classmethod
    def of(cls, info: ExecutorStepInfo) -> StepText:
        """Compute both texts."""
        identity = info.identity()
        return cls(to_bytes(info.content(identity)), canonical_text(identity))


def bounded_version(version: StepVersion, hashed_names: list[str], pseudo_hashed_names: list[str]) -> dict[str, Any]:
    """Return a version with its dependencies as `{name}-{hash}`.

    Args:
        version: The version.
        hashed_names: `{name}-{hash}` of each dependency.
        pseudo_hashed_names: `{name}-{hash}` of each non-blocking dependency.
    """
    short = {**version.version, "dependencies": hashed_names}
    if pseudo_hashed_names:
        short["pseudo_dependencies"] = pseudo_hashed_names
    return short


class _PlainForm(ConfigVisitor):
    """Return the JSON form of a config for people."""

    def visit_constant(self, obj: Any) -> Any:
        """Describe an enum member by its value."""
        return self.visit(obj.value) if isinstance(obj, enum.Enum) else text_of(obj)

    def visit_leaf(self, obj: Any) -> Any:
        """Return JSON values unchanged."""
        return text_of(obj) if isinstance(obj, (bytes, complex)) else obj

    visit_scalar = visit_leaf

    def visit_dataclass(self, obj: Any) -> Any:
        """Describe an object by its fields."""
        fields = {name: getattr(obj, name, None) for name in dataclass_field_names(type(obj))}
        return {name: item if type(item) in _PLAIN_TYPES else self.visit(item) for name, item in fields.items()}

    visit_placeholder = visit_dataclass

    def visit_dict(self, obj: dict[Any, Any]) -> Any:
        """Describe a dict by its items."""
        return {_key(key): self.visit(item) for key, item in obj.items()}

    def visit_sequence(self, obj: Any) -> Any:
        """Describe a list or tuple by its members."""
        return [item if type(item) in _PLAIN_TYPES else self.visit(item) for item in obj]

    def visit_set(self, obj: Any) -> Any:
        """Describe a set by its members, sorted."""
        return sorted((self.visit(item) for item in obj), key=repr)

    def visit_other(self, obj: Any) -> Any:
        """Describe any other object by its text."""
        if isinstance(obj, datetime.timedelta):
            return {"days": obj.days, "seconds": obj.seconds, "microseconds": obj.microseconds}
        return text_of(obj)


_PLAIN_FORM = _PlainForm()


def plain(value: Any) -> Any:
    """Return a JSON form of any config, for people. Objects without a JSON form become text."""
    return _PLAIN_FORM.visit(value)


def _key(key: Any) -> Any:
    plain_key = key.value if isinstance(key, enum.Enum) else key
    return plain_key if plain_key is None or isinstance(plain_key, (str, int, float)) else text_of(plain_key)


def caller_path() -> str:
    """Return the script or notebook that called the executor, or a special name such as `<stdin>`."""
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _OWN_MODULES:
            return notebook_of(frame.f_globals) or frame.f_code.co_filename
        frame = frame.f_back
    return "<unknown>"


def now_text() -> str:
    """Return the local time with its UTC offset, in ISO 8601."""
    return datetime.datetime.now().astimezone().isoformat()
